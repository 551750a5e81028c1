"""What is in the world: entities, ground, sensors, actuators."""

from genelab.scene.actuators import (
    ActuatorCfg,
    DcMotorActuatorCfg,
    IdealPdActuatorCfg,
    ImplicitPdActuatorCfg,
    ImplicitVelocityActuatorCfg,
)
from genelab.scene.entity import (
    Articulation,
    ArticulationCfg,
    Entity,
    EntityCfg,
    InitialStateCfg,
    RigidObject,
    RigidObjectCfg,
    mjcf_file,
    mjcf_text,
)
from genelab.scene.scene import Scene, SceneCfg
from genelab.scene.sensors import (
    ContactSensor,
    ContactSensorCfg,
    FrameSensor,
    FrameSensorCfg,
    HeightScan,
    HeightScanCfg,
    ImuSensor,
    ImuSensorCfg,
    Sensor,
    SensorCfg,
)
from genelab.scene.terrain import HeightFieldCfg, PlaneCfg, Terrain, TerrainCfg

__all__ = [
    "ActuatorCfg",
    "Articulation",
    "ArticulationCfg",
    "ContactSensor",
    "ContactSensorCfg",
    "DcMotorActuatorCfg",
    "Entity",
    "EntityCfg",
    "FrameSensor",
    "FrameSensorCfg",
    "HeightFieldCfg",
    "HeightScan",
    "HeightScanCfg",
    "IdealPdActuatorCfg",
    "ImplicitPdActuatorCfg",
    "ImplicitVelocityActuatorCfg",
    "ImuSensor",
    "ImuSensorCfg",
    "InitialStateCfg",
    "PlaneCfg",
    "RigidObject",
    "RigidObjectCfg",
    "Scene",
    "SceneCfg",
    "Sensor",
    "SensorCfg",
    "Terrain",
    "TerrainCfg",
    "mjcf_file",
    "mjcf_text",
]
