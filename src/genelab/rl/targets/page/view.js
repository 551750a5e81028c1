// What is seen: the model's geoms, a floor, a sun, and a camera that goes with the robot.

import * as THREE from "three";
import { OrbitControls } from "three/addons/controls/OrbitControls.js";

const SKY = 0xdfe7ec;
const PLANE = 0, SPHERE = 2, CAPSULE = 3, ELLIPSOID = 4, CYLINDER = 5, BOX = 6, MESH = 7; // of mjtGeom
const SHOWN = 3; // groups from here on are for the physics only

/** The shape of a geom in its own frame; null if it is not shown. */
function shapeOf(model, geom) {
  const [a, b, c] = model.geom_size.slice(3 * geom, 3 * geom + 3);
  switch (model.geom_type[geom]) {
    case SPHERE:
      return new THREE.SphereGeometry(a, 32, 20);
    case CAPSULE:
      return new THREE.CapsuleGeometry(a, 2 * b, 12, 28).rotateX(Math.PI / 2);
    case ELLIPSOID:
      return new THREE.SphereGeometry(1, 32, 20).scale(a, b, c);
    case CYLINDER:
      return new THREE.CylinderGeometry(a, a, 2 * b, 36).rotateX(Math.PI / 2);
    case BOX:
      return new THREE.BoxGeometry(2 * a, 2 * b, 2 * c);
    case MESH: {
      const mesh = model.geom_dataid[geom];
      const vertices = [model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]].map((n) => 3 * n);
      const faces = [model.mesh_faceadr[mesh], model.mesh_facenum[mesh]].map((n) => 3 * n);
      const shape = new THREE.BufferGeometry();
      const places = Float32Array.from(model.mesh_vert.slice(vertices[0], vertices[0] + vertices[1]));
      shape.setAttribute("position", new THREE.BufferAttribute(places, 3));
      shape.setIndex(Array.from(model.mesh_face.slice(faces[0], faces[0] + faces[1])));
      shape.computeVertexNormals();
      return shape;
    }
    default:
      return null;
  }
}

function colourOf(model, geom) {
  const material = model.geom_matid[geom];
  const [values, at] = material >= 0 ? [model.mat_rgba, material] : [model.geom_rgba, geom];
  return Array.from(values.slice(4 * at, 4 * at + 4));
}

/** A floor of squares that shows how fast the robot is; it goes with the robot, and its pattern stays. */
function makeFloor() {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 256;
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#c9d3d9";
  pen.fillRect(0, 0, 256, 256);
  pen.fillStyle = "#bfcad1";
  pen.fillRect(0, 0, 128, 128);
  pen.fillRect(128, 128, 128, 128);
  pen.strokeStyle = "#aebbc3";
  pen.lineWidth = 2;
  pen.strokeRect(0, 0, 256, 256);
  const pattern = new THREE.CanvasTexture(canvas);
  pattern.wrapS = pattern.wrapT = THREE.RepeatWrapping;
  pattern.repeat.set(60, 60);
  pattern.anisotropy = 8;
  pattern.colorSpace = THREE.SRGBColorSpace;
  const floor = new THREE.Mesh(
    new THREE.PlaneGeometry(60, 60),
    new THREE.MeshStandardMaterial({ map: pattern, roughness: 1 }),
  );
  floor.receiveShadow = true;
  return floor;
}

/** A flat arrow over the robot. */
class Arrow {
  constructor(scene, colour) {
    this.arrow = new THREE.ArrowHelper(new THREE.Vector3(1, 0, 0), new THREE.Vector3(), 0.1, colour, 0.08, 0.05);
    scene.add(this.arrow);
  }

  point([x, y], heading, place) {
    const length = Math.hypot(x, y);
    this.arrow.visible = length > 0.03;
    if (!this.arrow.visible) return;
    const angle = heading + Math.atan2(y, x);
    this.arrow.position.set(...place);
    this.arrow.setDirection(new THREE.Vector3(Math.cos(angle), Math.sin(angle), 0));
    this.arrow.setLength(0.5 * length + 0.08, 0.08, 0.05);
  }
}

export class View {
  constructor(canvas, robot) {
    this.robot = robot;
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true });
    this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    this.renderer.shadowMap.enabled = true;
    this.scene = new THREE.Scene();
    this.scene.background = new THREE.Color(SKY);
    this.scene.fog = new THREE.Fog(SKY, 8, 26);
    this.camera = new THREE.PerspectiveCamera(42, 1, 0.05, 60);
    this.camera.up.set(0, 0, 1);
    this.light();
    this.geoms = this.build();
    this.asked = new Arrow(this.scene, 0x2e9e5b);
    this.done = new Arrow(this.scene, 0x2f6fd0);
    this.controls = new OrbitControls(this.camera, canvas);
    Object.assign(this.controls, { enableDamping: true, enablePan: false, minDistance: 0.6, maxDistance: 9 });
    this.controls.maxPolarAngle = Math.PI / 2 - 0.04;
    this.home();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  light() {
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0x9aa8b0, 1.6));
    this.sun = new THREE.DirectionalLight(0xfff4e2, 2.4);
    this.sun.castShadow = true;
    this.sun.shadow.mapSize.set(2048, 2048);
    const reach = 1.2 * this.robot.plan.size;
    Object.assign(this.sun.shadow.camera, { left: -reach, right: reach, top: reach, bottom: -reach, near: 0.5, far: 20 });
    this.sun.shadow.radius = 3;
    this.sun.shadow.bias = -0.0005;
    this.sun.shadow.normalBias = 0.01;
    this.scene.add(this.sun, this.sun.target);
  }

  build() {
    const { model } = this.robot;
    const meshes = [];
    for (let geom = 0; geom < model.ngeom; geom++) {
      if (model.geom_type[geom] === PLANE) {
        this.floor = makeFloor();
        this.scene.add(this.floor);
        continue;
      }
      const shape = model.geom_group[geom] < SHOWN ? shapeOf(model, geom) : null;
      if (!shape) continue;
      const [r, g, b, opacity] = colourOf(model, geom);
      if (opacity === 0) continue;
      const colour = new THREE.Color().setRGB(r, g, b, THREE.SRGBColorSpace);
      const look = { color: colour, roughness: 0.55, metalness: 0.1, opacity, transparent: opacity < 1 };
      const mesh = new THREE.Mesh(shape, new THREE.MeshStandardMaterial(look));
      mesh.castShadow = mesh.receiveShadow = true;
      mesh.matrixAutoUpdate = false;
      this.scene.add(mesh);
      meshes.push({ geom, mesh });
    }
    return meshes;
  }

  /** Behind the robot and above it, at a distance that fits its size. */
  home() {
    const away = 2.1 * this.robot.plan.size;
    const [x, y, z] = this.robot.place;
    this.controls.target.set(x, y, z);
    this.camera.position.set(x - 0.75 * away, y - 0.8 * away, z + 0.5 * away);
    this.controls.update();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.renderer.domElement;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.camera.fov = width < height ? 58 : 42; // a phone held upright sees as much from side to side
    this.camera.updateProjectionMatrix();
  }

  /** Draw the robot as it is now. */
  draw() {
    const { data } = this.robot;
    for (const { geom, mesh } of this.geoms) {
      const [r, p] = [data.geom_xmat.slice(9 * geom, 9 * geom + 9), data.geom_xpos.slice(3 * geom, 3 * geom + 3)];
      mesh.matrix.set(r[0], r[1], r[2], p[0], r[3], r[4], r[5], p[1], r[6], r[7], r[8], p[2], 0, 0, 0, 1);
    }
    this.follow();
    this.point();
    this.renderer.render(this.scene, this.camera);
  }

  /** Take the camera, the light and the floor along. */
  follow() {
    const place = new THREE.Vector3(...this.robot.place);
    const move = place.clone().sub(this.controls.target);
    move.z *= 0.05; // steps do not shake the camera
    this.controls.target.add(move);
    this.camera.position.add(move);
    this.controls.update();
    this.sun.target.position.copy(place);
    this.sun.position.copy(place).add(new THREE.Vector3(-2.5, 2, 6));
    if (this.floor) this.floor.position.set(Math.round(place.x), Math.round(place.y), 0);
  }

  /** Green is asked for, blue is done. */
  point() {
    const { velocity, plan, commands, data } = this.robot;
    const twist = plan.velocity && commands[plan.velocity];
    if (!velocity || !twist) {
      this.asked.arrow.visible = this.done.arrow.visible = false;
      return;
    }
    const [w, x, y, z] = data.qpos.slice(plan.root.quat, plan.root.quat + 4);
    const heading = Math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z));
    const [px, py, pz] = this.robot.place;
    this.asked.point(twist, heading, [px, py, pz + 0.4 * plan.size + 0.06]);
    this.done.point(velocity, heading, [px, py, pz + 0.4 * plan.size]);
  }
}
