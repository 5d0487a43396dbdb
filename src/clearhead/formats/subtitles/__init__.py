"""Subtitles (SubRip, WebVTT): pairs of two files, and the file with its cues translated."""
