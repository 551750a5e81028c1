"""Unitree's robots: models, motors, default poses."""
