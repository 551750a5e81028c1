"""The world to be drawn: the compiled MJCF with a sky and a floor to see, in the pose of any environment."""

from __future__ import annotations

import mujoco
import numpy as np

from genelab.scene import Scene

SAMPLES = 4
"""Samples per pixel, against jagged edges."""
_SUN = "drawn_sun"
"""Name of the sun that goes with the robot."""
_SUN_DISTANCE = 3.0
"""How far from the robot the sun hangs, m."""
SKY = ((0.62, 0.74, 0.86), (0.96, 0.97, 0.98))
"""Colours of the sky, above and at the horizon."""
_FLOOR = ((0.80, 0.82, 0.84), (0.74, 0.76, 0.79))
"""Colours of the floor's squares."""
_GROUND = (0.70, 0.67, 0.62, 1.0)
"""Colour of a height field."""


class Puppet:
    """One copy of the world, put into the pose of an environment to be drawn."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        names = [name for name in ("robot", *scene.entities) if name in scene.entities]
        self._prefix = f"{names[0]}/" if names else "/"
        spec = scene.spec.copy()
        _dress(spec, self._prefix)
        self.model = spec.compile()
        _keep_the_sun_up(self.model)
        self.data = mujoco.MjData(self.model)
        self._double: mujoco.MjData | None = None
        self.root = self._find_root()
        """The first body of the robot; without a robot, of the first entity; the world if there is none."""
        self.take(self.data.qpos.copy())
        # The scale of things for clipping planes and shadows: the robot's, not that of the ground it walks on.
        self.model.stat.extent = max(0.3, self.bounds()[1])
        shapes = self._seen({self.root})
        reach = self.data.geom_xpos[shapes, 2] + self.model.geom_rbound[shapes] - self.data.xpos[self.root, 2]
        self.top = float(reach.max(initial=0.0))
        """How far the robot reaches above its root in the model's own pose, m."""

    def pose(self, env: int) -> mujoco.MjData:
        """Take the pose of an environment."""
        return self.take(self.scene.engine.qpos[env].cpu().numpy())

    def take(self, qpos: np.ndarray) -> mujoco.MjData:
        """Take a pose."""
        return self._pose(self.data, qpos)

    def posed(self, qpos: np.ndarray) -> mujoco.MjData:
        """Another copy of the world, in a pose."""
        if self._double is None:
            self._double = mujoco.MjData(self.model)
        return self._pose(self._double, qpos)

    def _pose(self, data: mujoco.MjData, qpos: np.ndarray) -> mujoco.MjData:
        data.qpos[:] = qpos
        # What a picture needs of the forward dynamics, without the collisions.
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_camlight(self.model, data)
        mujoco.mj_tendon(self.model, data)
        return data

    def _find_root(self) -> int:
        bodies = [body for body in range(1, self.model.nbody) if self.model.body(body).name.startswith(self._prefix)]
        return bodies[0] if bodies else 0

    @property
    def root_travels(self) -> bool:
        """Whether the robot can go anywhere, if only along a line or in a plane."""
        first, count = self.model.body_jntadr[self.root], self.model.body_jntnum[self.root]
        kinds = self.model.jnt_type[first : first + count]
        free, slide = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_SLIDE
        unlimited = self.model.jnt_limited[first : first + count] == 0
        return bool(np.any(kinds == free) or np.any((kinds == slide) & unlimited))

    def bounds(self, *, robot_only: bool = False) -> tuple[np.ndarray, float]:
        """Centre and radius of everything that can be seen, the ground aside, or of the robot alone."""
        seen = self._seen({self.root} if robot_only else set(self.model.body_rootid[1:].tolist()))
        if not seen.any():
            return np.array([0.0, 0.0, 0.5]), 1.0
        centres, radii = self.data.geom_xpos[seen], self.model.geom_rbound[seen, None]
        low, high = (centres - radii).min(axis=0), (centres + radii).max(axis=0)
        return (low + high) / 2, float(np.linalg.norm(high - low)) / 2

    def _seen(self, roots: set[int]) -> np.ndarray:
        """Which geoms hang on these bodies and are drawn."""
        return np.isin(self.model.body_rootid[self.model.geom_bodyid], list(roots)) & (self.model.geom_group < 3)


def _dress(spec: mujoco.MjSpec, robot: str) -> None:
    """Add what only a picture needs; what the MJCF has of it stays."""
    visual = spec.visual
    visual.headlight.ambient = [0.38, 0.38, 0.38]
    visual.headlight.diffuse = [0.30, 0.30, 0.30]
    visual.headlight.specular = [0.05, 0.05, 0.05]
    visual.quality.offsamples = SAMPLES
    visual.map.shadowclip = 3.0
    visual.map.zfar = 200.0
    visual.rgba.haze = [*SKY[1], 1.0]
    sky = mujoco.mjtTexture.mjTEXTURE_SKYBOX
    if not any(texture.type == sky for texture in spec.textures):
        gradient = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
        spec.add_texture(name="sky", type=sky, builtin=gradient, rgb1=SKY[0], rgb2=SKY[1], width=256, height=1536)
    for light in list(spec.lights):
        if light.name == "sun":
            _hang_the_sun(spec, light, robot)
        else:  # lights that a model brings would burn it out, together with the sun
            spec.delete(light)
    for geom in spec.worldbody.geoms:
        if geom.name != "terrain":
            continue
        geom.castshadow = False  # on itself it would: a pattern at the edge of the light, and twice the work
        if geom.material:
            continue
        if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
            geom.material = _floor(spec)
        else:
            geom.rgba = list(_GROUND)


def _hang_the_sun(spec: mujoco.MjSpec, light: mujoco.MjsLight, robot: str) -> None:
    """Let the sun go with the robot: its shadows reach only so far."""
    direction = np.array(light.dir)
    body = next((body for body in spec.bodies if body.name.startswith(robot)), None)
    if body is not None:
        sun = body.add_light(name=_SUN, type=light.type, dir=direction, mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACK)
        sun.pos = -_SUN_DISTANCE * direction / np.linalg.norm(direction)
        spec.delete(light)
        light = sun
    light.diffuse, light.specular = [0.55, 0.55, 0.52], [0.2, 0.2, 0.2]


def _keep_the_sun_up(model: mujoco.MjModel) -> None:
    """Place and direction of the sun were written for the world; the compiler took them for those of the robot's root,
    which may stand on its head."""
    for i in range(model.nlight):
        if model.light(i).name == _SUN:
            model.light_pos0[i], model.light_dir0[i] = model.light_pos[i], model.light_dir[i]


def _floor(spec: mujoco.MjSpec) -> str:
    """A material of squares of half a metre."""
    spec.add_texture(
        name="floor",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        mark=mujoco.mjtMark.mjMARK_EDGE,
        rgb1=_FLOOR[0],
        rgb2=_FLOOR[1],
        markrgb=[0.88, 0.89, 0.90],
        width=256,
        height=256,
    )
    material = spec.add_material(name="floor", texrepeat=[1.0, 1.0], texuniform=True, reflectance=0.0)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "floor"
    return "floor"
