"""Train models that outsize your device: the same step, to the same bits, inside a byte budget."""
