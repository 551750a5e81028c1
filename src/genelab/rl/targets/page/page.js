// The page: loads what the export wrote, lets the visitor ask, and keeps time.

import loadMujoco from "./vendor/mujoco.js";
import * as ort from "./vendor/ort.wasm.min.mjs";
import { norm, Policy, Robot } from "./robot.js";
import { View } from "./view.js";

const $ = (id) => document.getElementById(id);
const json = async (path) => (await fetchFile(path)).json();
const LONGEST = 0.1; // s of physics per picture: a slow machine shows slow motion, and does not hang

async function fetchFile(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
  return answer;
}

/** The world, with its meshes in the file system of the simulator. */
async function loadModel(mujoco, plan) {
  for (const path of ["world.xml", ...plan.assets]) {
    const parts = path.split("/").slice(0, -1);
    parts.forEach((_, i) => {
      const folder = "/" + parts.slice(0, i + 1).join("/");
      if (!mujoco.FS.analyzePath(folder).exists) mujoco.FS.mkdir(folder);
    });
    mujoco.FS.writeFile("/" + path, new Uint8Array(await (await fetchFile(path)).arrayBuffer()));
  }
  return mujoco.MjModel.from_xml_path("/world.xml");
}

async function loadRobot() {
  const [plan, about] = await Promise.all([json("page.json"), json("policy.onnx.metadata.json")]);
  document.title = plan.title;
  $("title").textContent = plan.title;
  ort.env.wasm.numThreads = 1; // more of them would need headers that a plain file server does not send
  ort.env.wasm.wasmPaths = new URL("./vendor/", import.meta.url).href;
  const [mujoco, session] = await Promise.all([loadMujoco(), ort.InferenceSession.create("policy.onnx")]);
  const policy = new Policy(ort, session, about);
  const error = await policy.goldenError();
  if (!(error <= about.golden.tolerance)) throw new Error(`the policy is ${error} off its golden rows`);
  return new Robot({ mujoco, model: await loadModel(mujoco, plan), policy, about, plan });
}

/** A slider for each column of each command that can be asked for. */
function makeSliders(robot) {
  const sliders = robot.plan.controls.map(({ command, column, label, low, high }) => {
    const row = document.createElement("label");
    row.className = "slider";
    row.innerHTML = `<span class="name"></span><span class="done"></span><output></output>
      <input type="range" min="${low}" max="${high}" step="${(high - low) / 200}" value="0">`;
    row.querySelector(".name").textContent = label;
    const [input, output] = [row.querySelector("input"), row.querySelector("output")];
    input.dataset.control = `${command}.${column}`;
    const ask = () => {
      robot.command(command, column, Number(input.value));
      output.textContent = Number(input.value).toFixed(2);
    };
    input.addEventListener("input", ask);
    input.value = low > 0 ? low : high < 0 ? high : 0;
    ask();
    $("sliders").append(row);
    return { input, ask };
  });
  return (value) => {
    for (const { input, ask } of sliders) {
      input.value = value;
      ask();
    }
  };
}

/** What the robot does, beside what it is asked; smoothed over a quarter of a second of its time. */
function makeReadout(robot) {
  const smooth = [0, 0, 0];
  const done = [0, 1, 2].map((i) =>
    document.querySelector(`[data-control="${robot.plan.velocity}.${i}"]`)?.parentElement.querySelector(".done"),
  );
  let steps = 0;
  return () => {
    const { velocity, about } = robot;
    const seconds = robot.steps * about.step_dt;
    if (velocity) {
      const weight = 1 - Math.exp(-(Math.abs(robot.steps - steps) * about.step_dt) / 0.25);
      velocity.forEach((value, i) => (smooth[i] += (value - smooth[i]) * weight));
      smooth.forEach((value, i) => done[i] && (done[i].textContent = (Math.abs(value) < 0.005 ? 0 : value).toFixed(2)));
    }
    steps = robot.steps;
    const speed = velocity ? `<b>${norm(smooth.slice(0, 2)).toFixed(2)}</b> m/s, ` : "";
    $("speed").innerHTML = `${speed}${seconds.toFixed(1)} s since the start`;
  };
}

async function start() {
  const robot = await loadRobot();
  const view = new View($("canvas"), robot);
  const setAll = makeSliders(robot);
  const readout = makeReadout(robot);
  let [owed, last, fell, running, busy] = [0, performance.now(), 0, true, Promise.resolve()];

  const again = () => {
    robot.reset();
    view.home();
  };
  $("reset").onclick = again;
  $("stop").onclick = () => setAll(0);
  $("stop").hidden = robot.plan.controls.length === 0;
  $("push").onclick = () => robot.push(1);
  const forward = document.querySelector(`[data-control="${robot.plan.velocity}.0"]`);
  if (forward) {
    forward.value = 0.6 * forward.max; // it walks when the page opens
    forward.dispatchEvent(new Event("input"));
  }

  async function advance(seconds) {
    owed = Math.min(owed + seconds, LONGEST);
    while (owed >= robot.about.step_dt) {
      await robot.step();
      owed -= robot.about.step_dt;
    }
    if (!robot.fallen) return void (fell = 0);
    fell += seconds;
    if (fell > 1.5) again();
  }

  async function frame(now) {
    const seconds = (now - last) / 1000;
    last = now;
    if (running) {
      busy = advance(seconds);
      await busy;
    }
    view.draw();
    readout();
    $("fell").hidden = !robot.fallen;
    requestAnimationFrame(frame);
  }

  // For tests, and for the console: time stands still while somebody else steps.
  window.genelab = {
    robot,
    async pause() {
      running = false;
      await busy;
    },
    resume() {
      running = true;
    },
  };
  $("loading").remove();
  document.body.dataset.state = "running";
  requestAnimationFrame(frame);
}

start().catch((error) => {
  console.error(error);
  document.body.dataset.state = "failed";
  $("loading").textContent = `This page could not start: ${error.message ?? error}`;
});
