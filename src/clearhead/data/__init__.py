"""From pairs of text to batches of ids: cleaning, holding out, the store on disk, the order of the steps."""
