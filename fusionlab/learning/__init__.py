"""The parts that learned matching and polish share: targets, batches, mixtures, points between models, steps."""
