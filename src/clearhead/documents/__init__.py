"""Files whose text is translated while all else in them stays as it is, byte for byte: a file a format."""
