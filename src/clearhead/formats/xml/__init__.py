"""Shared code of the XML formats: parser events, elements with positions, and inline elements as numbered tags."""
