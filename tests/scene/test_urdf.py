"""Robots from URDF, and worlds with meshes as files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest

from genelab.errors import UsageError
from genelab.scene import ArticulationCfg, IdealPdActuatorCfg, Scene, mjcf_file, mjcf_text, urdf_file
from genelab.scene.pack import pack
from genelab.scene.urdf import _say_once
from genelab.sim import ModelError

INERTIA = '<inertial><mass value="2"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>'
GRIPPER = f"""
<robot name="gripper">
  <link name="palm">{INERTIA}
    <visual><geometry><mesh filename="package://gripper/meshes/palm.obj"/></geometry></visual>
    <visual><geometry><mesh filename="package://gripper/meshes/logo.dae"/></geometry></visual>
    <collision><geometry><box size=".1 .1 .1"/></geometry></collision>
  </link>
  <link name="left">{INERTIA}</link>
  <link name="right">{INERTIA}</link>
  <link name="tip">{INERTIA}</link>
  <joint name="slide_left" type="prismatic">
    <parent link="palm"/><child link="left"/><axis xyz="0 1 0"/><limit lower="0" upper=".1" effort="20" velocity="1"/>
  </joint>
  <joint name="slide_right" type="prismatic">
    <parent link="palm"/><child link="right"/><axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="20" velocity="1"/>
    <mimic joint="slide_left" multiplier="-0.5" offset="0.02"/>
  </joint>
  <joint name="weld" type="fixed"><parent link="left"/><child link="tip"/><origin xyz="0 0 .1"/></joint>
</robot>
"""
FACES = ("124", "143", "578", "586", "156", "162", "348", "387", "137", "175", "268", "284")
CUBE = "".join(f"v {x} {y} {z}\n" for x in (0, 1) for y in (0, 1) for z in (0, 1)) + "".join(
    f"f {' '.join(face)}\n" for face in FACES
)


@pytest.fixture
def gripper(tmp_path: Path) -> Path:
    """A package as ROS lays it out."""
    for folder in ("urdf", "meshes"):
        (tmp_path / "gripper" / folder).mkdir(parents=True)
    (tmp_path / "gripper/meshes/palm.obj").write_text(CUBE)
    (tmp_path / "gripper/meshes/logo.dae").write_text("<COLLADA/>")
    path = tmp_path / "gripper/urdf/gripper.urdf"
    path.write_text(GRIPPER)
    return path


def robot(path: Path, **options: object) -> ArticulationCfg:
    motor = IdealPdActuatorCfg(joint_names=("slide_left",))
    return ArticulationCfg(spec=urdf_file, spec_args={"path": str(path), **options}, actuators={"motor": motor})


def test_links_are_bodies_and_visuals_are_kept(
    make_scene: Callable[..., Scene], gripper: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        scene = make_scene({"robot": robot(gripper)})
    assert caplog.text.count("left out the visual mesh package://gripper/meshes/logo.dae") == 1
    entity, model = scene["robot"], scene.engine.model
    assert entity.body_names == ["palm", "left", "tip", "right"]
    assert entity.is_fixed_base
    assert entity.body_mass.sum().item() == pytest.approx(8.0)
    assert (model.nmesh, model.ngeom) == (1, 2)
    visual = model.geom_contype == 0
    assert model.geom_type[visual].tolist() == [mujoco.mjtGeom.mjGEOM_MESH]
    assert model.actuator_forcerange[0].tolist() == [-20.0, 20.0]  # the file's limit of effort


def test_a_floating_base_on_request(make_scene: Callable[..., Scene], gripper: Path) -> None:
    entity = make_scene({"robot": robot(gripper, floating_base=True)}, num_envs=1)["robot"]
    assert not entity.is_fixed_base
    assert entity.joint_names == ["slide_left", "slide_right"]
    text = gripper.read_text().replace('<link name="palm">', '<link name="world"/><link name="palm">')
    gripper.write_text(
        text.replace(
            "</robot>",
            '<joint name="stand" type="fixed"><parent link="world"/>'
            '<child link="palm"/><origin xyz="0 0 2"/></joint></robot>',
        )
    )
    assert make_scene({"robot": robot(gripper)}, num_envs=1)["robot"].root_pos_w[0, 2].item() == 2.0
    assert not make_scene({"robot": robot(gripper, floating_base=True)}, num_envs=1)["robot"].is_fixed_base


def test_a_mimic_joint_follows(make_scene: Callable[..., Scene], gripper: Path) -> None:
    scene = make_scene({"robot": robot(gripper)}, num_envs=1, gravity=(0.0, 0.0, 0.0))
    arm = scene.articulation("robot")
    arm.joint_effort_target[:, 0] = 0.2
    scene.step(100)
    left, right = arm.joint_pos[0].tolist()
    assert left > 0.01
    assert right == pytest.approx(0.02 - 0.5 * left, abs=2e-3)


def test_a_link_without_inertial_weighs_nothing_beside_one_that_has(
    gripper: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, box = gripper.read_text(), "<collision><geometry><box size='1 1 1'/></geometry></collision>"
    joint = "<joint name='on' type='fixed'><parent link='left'/><child link='plate'/></joint>"
    plate = f"<link name='plate'>{box}</link>{joint}"
    gripper.write_text(text.replace("</robot>", f"{plate}</robot>"))
    model = urdf_file(str(gripper)).compile()
    assert model.body("plate").mass == 0.0  # MuJoCo alone would give it a tonne
    assert model.body_mass.sum() == pytest.approx(8.0)
    gripper.write_text(text.replace("</robot>", f"{plate.replace('fixed', 'continuous')}</robot>"))
    with caplog.at_level(logging.WARNING):
        assert urdf_file(str(gripper)).compile().body("plate").mass == 1000.0  # it moves by itself
    assert "link 'plate' has no <inertial>: shapes there weigh 1000 kg/m³" in caplog.text


@pytest.mark.parametrize(
    "tensor", ['ixx=".01" iyy=".01" izz=".03" ixy="0"', 'ixx=".01" iyy=".02" izz=".02" ixy=".03"'], ids=["axes", "full"]
)
def test_an_inertia_that_no_body_can_have_is_balanced_on_request(gripper: Path, tensor: str) -> None:
    text = gripper.read_text()
    gripper.write_text(text.replace('ixx=".01" iyy=".01" izz=".01" ixy="0"', tensor, 1))
    with pytest.raises(ValueError, match="inertia must"):
        urdf_file(str(gripper)).compile()
    model = urdf_file(str(gripper), compiler={"balanceinertia": "true"}).compile()
    assert model.body("palm").inertia == pytest.approx([0.05 / 3] * 3)
    assert model.body("left").inertia == pytest.approx([0.01] * 3)


def test_what_a_urdf_lacks_is_named(gripper: Path) -> None:
    text = gripper.read_text()
    for change, message in (
        (('<box size=".1 .1 .1"/>', '<mesh filename="package://other/palm.stl"/>'), r"^link 'palm': no mesh at 'pack"),
        (
            ('<box size=".1 .1 .1"/>', '<mesh filename="../meshes/logo.dae"/>'),
            r"MuJoCo reads \.stl.* not the collision",
        ),
        (('<child link="tip"/>', '<child link="left"/>'), r"a robot has one root link, this has 2: palm, tip$"),
        (('<mimic joint="slide_left"', '<mimic joint="slide_lft"'), r"mimics 'slide_lft', which is no joint of it$"),
        (("<robot", "<model"), r"is not XML"),
    ):
        gripper.write_text(text.replace(*change))
        with pytest.raises(Exception, match=message):
            urdf_file(str(gripper))
    with pytest.raises(ModelError, match=r"read it with `urdf_file`"):
        mjcf_file(str(gripper))


def test_packages_may_be_elsewhere(gripper: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.urdf"
    elsewhere.write_text(GRIPPER)
    spec = urdf_file(str(elsewhere), packages={"gripper": str(gripper.parents[1])})
    assert [mesh.file for mesh in spec.meshes] == [str(gripper.parents[1] / "meshes/palm.obj")]


def test_a_world_with_meshes_loads_as_it_was_written(
    make_scene: Callable[..., Scene], gripper: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "parts").mkdir(parents=True)
    (other / "parts/palm.obj").write_text(CUBE.replace("v 1", "v 2"))
    (other / "robot.xml").write_text(
        "<mujoco><compiler meshdir='parts'/><asset><mesh name='palm' file='palm.obj'/></asset><worldbody>"
        "<body name='block'><freejoint/><geom type='mesh' mesh='palm'/></body></worldbody></mujoco>"
    )
    block = ArticulationCfg(spec=mjcf_file, spec_args={"path": str(other / "robot.xml")})
    scene = make_scene({"robot": robot(gripper), "block": block}, num_envs=1)
    with pytest.raises(UsageError, match=r"palm\.obj lies outside of the model's folder; pass `assets='.*meshes'`"):
        pack(scene.spec, scene.model_dirs)
    assert pack(scene.spec, [*scene.model_dirs, gripper.parents[1] / "meshes"])
    (gripper.parents[1] / "package.xml").write_text("<package/>")  # a ROS package is one folder
    scene = make_scene({"robot": robot(gripper), "block": block}, num_envs=1)
    files = pack(scene.spec, scene.model_dirs)
    assert sorted(files) == ["assets/palm.obj", "assets/palm_1.obj", "world.xml"]
    out = tmp_path / "out"
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
    again = mujoco.MjModel.from_xml_path(str(out / "world.xml"))
    assert again.body_mass == pytest.approx(scene.engine.model.body_mass, rel=1e-5)
    assert again.nmesh == 2
    assert mujoco.MjModel.from_xml_string(scene.spec.to_xml()).nmesh == 2  # on this machine the text alone will do


def test_files_given_as_bytes_are_packed(make_scene: Callable[..., Scene]) -> None:
    def spec() -> mujoco.MjSpec:
        made = mjcf_text("<mujoco><worldbody><body name='b'><freejoint/></body></worldbody></mujoco>")
        made.assets = {"cube.obj": CUBE.encode()}
        made.add_mesh(name="cube", file="cube.obj")
        made.bodies[1].add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="cube")
        return made

    scene = make_scene({"robot": ArticulationCfg(spec=spec)}, num_envs=1)
    assert pack(scene.spec, scene.model_dirs)["assets/cube.obj"] == CUBE.encode()


def test_collada_is_converted_to_metres(make_scene: Callable[..., Scene], gripper: Path) -> None:
    trimesh, collada = pytest.importorskip("trimesh"), pytest.importorskip("collada")
    box = trimesh.creation.box((100.0, 200.0, 300.0))
    logo = gripper.parents[1] / "meshes/logo.dae"
    logo.write_bytes(box.export(file_type="dae"))
    document = collada.Collada(str(logo))
    document.assetInfo.unitmeter, document.assetInfo.unitname = 0.001, "millimetre"
    document.write(str(logo))
    model = urdf_file(str(gripper)).compile()
    assert model.nmesh == 2
    start, count = model.mesh_vertadr[1], model.mesh_vertnum[1]
    spans = np.ptp(model.mesh_vert[start : start + count], axis=0)
    assert sorted(spans.tolist()) == pytest.approx([0.1, 0.2, 0.3])
    assert make_scene({"robot": robot(gripper)}, num_envs=1).engine.model.nmesh == 2  # beside one that is read as it is
