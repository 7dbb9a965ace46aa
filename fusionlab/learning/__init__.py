"""The parts that learned matching and polish share: targets, batches, supplements of few inputs, points, steps."""
