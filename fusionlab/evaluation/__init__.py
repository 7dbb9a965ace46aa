"""What a merge is worth: barriers, distances, results and their presentation."""
