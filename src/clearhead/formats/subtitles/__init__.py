"""Subtitles (SubRip, WebVTT): sentence pairs from two files, and a file with its cues translated."""
