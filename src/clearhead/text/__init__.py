"""Text analysis without a model: scripts, languages, sentences, placeholders, quality flags."""
