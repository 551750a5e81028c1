"""The arm: model, servos, default pose."""
