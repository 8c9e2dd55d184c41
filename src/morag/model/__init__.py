"""The types that users see: keys, content, operations, references. Knows neither storage nor HTTP,
and imports nothing else of Morag but `errors`."""
