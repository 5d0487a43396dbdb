"""What is known of a text without a model: scripts, languages, sentences, placeholders, quality flags."""
