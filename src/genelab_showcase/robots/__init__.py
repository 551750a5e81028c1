"""The hand: model and servos."""
