"""Sensors: contact, frame, inertial unit, points, height scan."""

from genelab.scene.sensors.base import Sensor, SensorCfg
from genelab.scene.sensors.contact import ContactSensor, ContactSensorCfg
from genelab.scene.sensors.frame import FrameSensor, FrameSensorCfg, ImuSensor, ImuSensorCfg
from genelab.scene.sensors.height_scan import HeightScan, HeightScanCfg
from genelab.scene.sensors.points import PointsSensor, PointsSensorCfg

__all__ = [
    "ContactSensor",
    "ContactSensorCfg",
    "FrameSensor",
    "FrameSensorCfg",
    "HeightScan",
    "HeightScanCfg",
    "ImuSensor",
    "ImuSensorCfg",
    "PointsSensor",
    "PointsSensorCfg",
    "Sensor",
    "SensorCfg",
]
