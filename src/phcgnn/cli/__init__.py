"""The command: the only place that parses strings, a thin file a verb."""
