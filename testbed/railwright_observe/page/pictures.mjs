// Take a picture of each page: `node pictures.mjs BROWSER FOLDER`, with the pages' addresses by name
// as JSON on stdin. Prints for each the titles of its panels, those without data, and its errors.

import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const WIDTH = 1440;
// Panels are drawn when they come into view, so all must be in view at once.
const HEIGHT = 4000;
const DEADLINE_MS = 60_000;

const [executablePath, folder] = process.argv.slice(2);
const pages = JSON.parse(readFileSync(0));
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const seen = {};
for (const [name, address] of Object.entries(pages)) {
  const page = await browser.newPage({
    viewport: { width: WIDTH, height: HEIGHT }, timezoneId: 'UTC', locale: 'en-GB',
  });
  page.setDefaultTimeout(DEADLINE_MS);
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(address, { waitUntil: 'networkidle' });
  await page.locator('[data-testid="panel"]').first().waitFor();
  await page.waitForFunction(() => !document.querySelector('.MuiSkeleton-root, [role=progressbar]'));
  await page.waitForLoadState('networkidle');
  seen[name] = await page.evaluate(() => {
    const panels = [...document.querySelectorAll('[data-testid="panel"]')];
    const heading = (panel) => document.getElementById(panel.getAttribute('aria-labelledby'));
    const titles = (found) => found.map((each) => heading(each).textContent.trim());
    return {
      panels: titles(panels),
      empty: titles(panels.filter((each) => each.textContent.includes('No data'))),
      errors: [...document.querySelectorAll('[role=alert]')].map((each) => each.textContent),
    };
  });
  seen[name].errors.push(...errors);
  const { height } = await page.locator('#page > *').first().boundingBox();
  const clip = { x: 0, y: 0, width: WIDTH, height: Math.ceil(height) };
  await page.screenshot({ path: `${folder}/${name}.png`, clip });
  await page.close();
}
await browser.close();
console.log(JSON.stringify(seen));
