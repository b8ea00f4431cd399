"""Where facts about the fabric come from, one file a source: text in, values out."""
