// A page with one of the dashboards, drawn by Perses. `?dashboard=` names it, `start` is the time
// range, and `var-...` a choice of it. The dashboards are files beside the page, in Perses' form.

import { Box, Link, Stack, ThemeProvider, Typography } from '@mui/material';
import * as bars from '@perses-dev/bar-chart-plugin';
import {
  ChartsProvider, generateChartsTheme, getTheme, SnackbarProvider,
} from '@perses-dev/components';
import {
  Dashboard, DashboardProvider, DatasourceStoreProvider, VariableList,
  VariableProviderWithQueryParams,
} from '@perses-dev/dashboards';
import {
  dynamicImportPluginLoader, PluginRegistry, TimeRangeControls, TimeRangeProviderWithQueryParams,
  useInitialRefreshInterval, useInitialTimeRange,
} from '@perses-dev/plugin-system';
import * as prometheus from '@perses-dev/prometheus-plugin';
import * as numbers from '@perses-dev/stat-chart-plugin';
import * as states from '@perses-dev/status-history-chart-plugin';
import * as tables from '@perses-dev/table-plugin';
import * as lines from '@perses-dev/timeseries-chart-plugin';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { QueryParamProvider } from 'use-query-params';
import { ReactRouter6Adapter } from 'use-query-params/adapters/react-router-6';

// As in Grafana: the value of now, not the newest one of the range, which may be hours old.
const instant = (plugin) => ({ ...plugin, queryOptions: { mode: 'instant' } });
const plugins = [
  prometheus, states, tables, lines,
  { ...numbers, StatChart: instant(numbers.StatChart) },
  { ...bars, BarChart: instant(bars.BarChart) },
];
const pluginLoader = dynamicImportPluginLoader(plugins.map((plugin) => ({
  resource: plugin.getPluginModule(),
  importPlugin: async () => plugin,
})));
const defaultPluginKinds = { Panel: 'TimeSeriesChart', TimeSeriesQuery: 'PrometheusTimeSeriesQuery' };
// The only source of data is the one in the dashboard.
const datasourceApi = {
  getDatasource: async () => undefined,
  getGlobalDatasource: async () => undefined,
  listDatasources: async () => [],
  listGlobalDatasources: async () => [],
};
const theme = getTheme('light');
const chartsTheme = generateChartsTheme(theme, {});
const queryClient = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false } } });

function Heading({ display, others }) {
  return (
    <Stack spacing={1}>
      <Stack direction="row" spacing={2}>
        {others.map(({ name, title }) => (
          <Link key={name} href={`?dashboard=${name}`} underline="hover">{title}</Link>
        ))}
      </Stack>
      <Typography variant="h1">{display.name}</Typography>
      <Typography>{display.description}</Typography>
      <Stack direction="row" spacing={2} alignItems="center" justifyContent="space-between">
        <Stack direction="row" spacing={2}><VariableList /></Stack>
        <Stack direction="row" spacing={2} alignItems="center">
          <Typography variant="caption">Drawn by Perses</Typography>
          <TimeRangeControls />
        </Stack>
      </Stack>
    </Stack>
  );
}

function View({ dashboard, others }) {
  const { display, duration, refreshInterval, variables } = dashboard.spec;
  return (
    <DatasourceStoreProvider dashboardResource={dashboard} datasourceApi={datasourceApi}>
      <DashboardProvider initialState={{ dashboardResource: dashboard, isEditMode: false }}>
        <TimeRangeProviderWithQueryParams
          initialTimeRange={useInitialTimeRange(duration)}
          initialRefreshInterval={useInitialRefreshInterval(refreshInterval)}
        >
          <VariableProviderWithQueryParams initialVariableDefinitions={variables}>
            <Box sx={{ padding: 2 }}>
              <Heading display={display} others={others} />
              <Dashboard />
            </Box>
          </VariableProviderWithQueryParams>
        </TimeRangeProviderWithQueryParams>
      </DashboardProvider>
    </DatasourceStoreProvider>
  );
}

function Page(given) {
  return (
    <BrowserRouter>
      <QueryParamProvider adapter={ReactRouter6Adapter}>
        <ThemeProvider theme={theme}>
          <ChartsProvider chartsTheme={chartsTheme}>
            <SnackbarProvider>
              <QueryClientProvider client={queryClient}>
                <PluginRegistry pluginLoader={pluginLoader} defaultPluginKinds={defaultPluginKinds}>
                  <View {...given} />
                </PluginRegistry>
              </QueryClientProvider>
            </SnackbarProvider>
          </ChartsProvider>
        </ThemeProvider>
      </QueryParamProvider>
    </BrowserRouter>
  );
}

const read = async (name) => (await fetch(`${name}.json`)).json();
const others = await read('dashboards');
const name = new URLSearchParams(window.location.search).get('dashboard') ?? others[0].name;
createRoot(document.getElementById('page')).render(
  <Page dashboard={await read(name)} others={others} />,
);
