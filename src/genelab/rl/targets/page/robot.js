// A robot that an exported policy drives, by what the export's metadata say. It knows no page: only numbers.
//
// `about` is policy.onnx.metadata.json, `plan` is page.json: where in MuJoCo's arrays the numbers are.

/** A vector of the world in the frame of a body whose quaternion (w x y z) starts at `at`. */
function intoBody(quat, at, [x, y, z]) {
  const [w, i, j, k] = [quat[at], -quat[at + 1], -quat[at + 2], -quat[at + 3]];
  const [a, b, c] = [2 * (j * z - k * y), 2 * (k * x - i * z), 2 * (i * y - j * x)];
  return [x + w * a + j * c - k * b, y + w * b + k * a - i * c, z + w * c + i * b - j * a];
}

const share = (x) => x - Math.floor(x);
const clamp = (x, low, high) => Math.min(Math.max(x, low ?? -Infinity), high ?? Infinity);
export const norm = (values) => Math.hypot(...values);

/** The network: raw observations in, actions out; clip, scale and normaliser are inside. */
export class Policy {
  constructor(ort, session, about) {
    Object.assign(this, { ort, session, about });
    this.reset();
  }

  /** Forget, if it has a memory. */
  reset() {
    const memory = this.about.recurrent;
    const shape = memory?.hidden_state_shape ?? [0, 0, 0];
    const names = memory?.onnx_inputs.slice(1) ?? [];
    const zeros = () => new this.ort.Tensor("float32", new Float32Array(shape[0] * shape[2]), [shape[0], 1, shape[2]]);
    this.state = Object.fromEntries(names.map((name) => [name, zeros()]));
  }

  async act(observation) {
    const obs = new this.ort.Tensor("float32", Float32Array.from(observation), [1, observation.length]);
    const out = await this.session.run({ obs, ...this.state });
    for (const name of Object.keys(this.state)) this.state[name] = out[name.replace("_in", "_out")];
    return Array.from(out.actions.data);
  }

  /** Largest difference from the golden rows of the export. */
  async goldenError() {
    let worst = 0;
    const { observations, actions, resets } = this.about.golden;
    for (let row = 0; row < observations.length; row++) {
      if (resets[row]) this.reset();
      const found = await this.act(observations[row]);
      worst = Math.max(worst, ...found.map((value, i) => Math.abs(value - actions[row][i])));
    }
    this.reset();
    return worst;
  }
}

/** When each foot is to be in the air: `GaitClock` of genelab.mdp. */
class Clock {
  constructor(settings, offsets) {
    Object.assign(this, { settings, offsets });
  }

  reset(command, phase) {
    this.phase = phase;
    this.resting = this.settings.run_out;
    this.moving = false;
    this.update(command);
  }

  advance(command, dt) {
    this.phase += this.settings.frequency * dt;
    this.resting += dt;
    this.update(command);
  }

  update(command) {
    const { command_axes: axes, threshold, run_out: runOut } = this.settings;
    const asked = norm(axes ? axes.map((axis) => command[axis]) : command) > threshold;
    if (asked) this.resting = 0;
    this.moving = asked || this.resting < runOut || (this.moving && this.phase < (runOut > 0 ? 1 : 0));
    this.phase = this.moving ? share(this.phase) : 0;
  }

  get values() {
    const angle = 2 * Math.PI * this.phase;
    return this.moving ? [Math.sin(angle), Math.cos(angle)] : [0, 0];
  }

  /** From 0 on the ground to 1 at the top of a swing. */
  lift(foot) {
    const swing = share(this.phase + this.offsets[foot]) / this.settings.swing_share;
    return this.moving && swing < 1 ? Math.sin(Math.PI * swing) ** 2 : 0;
  }

  /** How far a foot is ahead of where it stands at rest: 1 where it lands, −1 where it lifts off. */
  sweep(foot, lead) {
    const x = share(this.phase + this.offsets[foot] + lead);
    const s = this.settings.swing_share;
    if (!this.moving) return 0;
    return x < s ? -Math.cos((Math.PI * x) / s) : 1 - (2 * (x - s)) / (1 - s);
  }
}

/** What an action term asks of its joints: offset + scale · action, and what it adds to that. */
class Action {
  constructor(term, robot) {
    Object.assign(this, { term, robot });
    this.reset();
  }

  reset() {
    this.speed = new Array(this.term.dim).fill(0);
    this.past = null;
  }

  targets(action) {
    const { start, dim, offset, scale, clip } = this.term;
    const added = this.term.steps ? this.script() : this.term.rolls ? this.roll() : null;
    return Array.from({ length: dim }, (_, i) => {
      const wanted = offset[i] + scale[i] * clamp(action[start + i], clip?.[0], clip?.[1]);
      return added ? wanted + this.term.share * added[i] : wanted;
    });
  }

  /** The step that the clock makes, under the policy's correction. */
  script() {
    const clock = this.robot.clocks[this.term.clock];
    const command = this.averaged(this.robot.commands[clock.settings.command]);
    const added = new Array(this.term.dim).fill(0);
    command.forEach((value, c) => added.forEach((_, i) => (added[i] += Math.abs(value) * this.term.spread[c][i])));
    for (const [foot, step] of Object.entries(this.term.steps)) {
      const [lift, sweep] = [clock.lift(foot), clock.sweep(foot, this.term.lead)];
      const strides = this.term.strides[foot];
      added.forEach((_, i) => {
        const stride = command.reduce((sum, value, c) => sum + value * strides[c][i], 0);
        added[i] += lift * step[i] + sweep * stride;
      });
    }
    return added;
  }

  /** The mean of the last commands; before an episode, its first one. */
  averaged(command) {
    const frames = this.term.frames ?? 1;
    this.past = [...(this.past ?? new Array(frames).fill([...command])).slice(1), [...command]];
    return command.map((_, c) => this.past.reduce((sum, asked) => sum + asked[c], 0) / frames);
  }

  /** Wheels that go towards the speed which the command asks of them. */
  roll() {
    const command = this.robot.commands[this.term.command];
    const most = this.term.acceleration * this.robot.about.step_dt;
    this.speed.forEach((now, i) => {
      const wanted = command.reduce((sum, value, c) => sum + value * this.term.rolls[c][i], 0);
      this.speed[i] = now + clamp(wanted - now, -most, most);
    });
    return this.speed;
  }
}

export class Robot {
  constructor({ mujoco, model, policy, about, plan }) {
    Object.assign(this, { mujoco, model, policy, about, plan });
    this.data = new mujoco.MjData(model);
    this.commands = Object.fromEntries(
      Object.entries(about.commands).map(([name, { dim }]) => [name, new Array(dim).fill(0)]),
    );
    this.clocks = Object.fromEntries(
      Object.entries(plan.clocks).map(([name, offsets]) => [name, new Clock(about.commands[name], offsets)]),
    );
    this.actions = about.actions.map((term) => new Action(term, this));
    this.targets = {};
    this.reset();
  }

  /** A new episode; the clock begins anywhere in its period, or where it is told. */
  reset(phase = Math.random()) {
    const { data, plan } = this;
    this.mujoco.mj_resetData(this.model, data);
    data.qpos.set(plan.start);
    this.mujoco.mj_forward(this.model, data);
    this.policy.reset();
    this.lastAction = new Array(this.about.action_dim).fill(0);
    for (const action of this.actions) action.reset();
    for (const clock of Object.values(this.clocks)) clock.reset(this.commands[clock.settings.command], phase);
    this.history = null;
    this.steps = 0;
  }

  command(name, column, value) {
    this.commands[name][column] = value;
  }

  /** What one term measures. */
  read(term) {
    const { qpos, qvel } = this.data;
    const { root } = this.plan;
    switch (term.kind) {
      case "base_lin_vel":
        return intoBody(qpos, root.quat, qvel.slice(root.vel, root.vel + 3));
      case "base_ang_vel": // a free joint has it in the body's frame already
        return Array.from(qvel.slice(root.vel + 3, root.vel + 6));
      case "projected_gravity":
        return intoBody(qpos, root.quat, [0, 0, -1]);
      case "joint_pos":
        return term.qpos.map((at, i) => qpos[at] - term.rest[i]);
      case "joint_vel":
        return term.qvel.map((at, i) => qvel[at] - term.rest[i]);
      case "wheel_angle": {
        const mean = (turn) => term.qpos.reduce((sum, at) => sum + turn(qpos[at]), 0) / term.qpos.length;
        return [mean(Math.sin), mean(Math.cos)];
      }
      case "last_action":
        return this.lastAction;
      case "command":
        return this.clocks[term.command]?.values ?? this.commands[term.command];
      default:
        throw new Error(`unknown observation ${term.kind}`);
    }
  }

  /** The policy's input; groups that stack frames have the oldest first, and the first one fills the stack. */
  observe() {
    const frames = this.plan.observations.map((group) => group.terms.flatMap((term) => this.read(term)));
    this.history ??= frames.map((frame, g) => new Array(this.plan.observations[g].history).fill(frame));
    this.history = this.history.map((stack, g) => [...stack.slice(1), frames[g]]);
    return this.history.flat(2);
  }

  /** One control step. */
  async step() {
    const action = await this.policy.act(this.observe());
    this.lastAction = action;
    for (const term of this.actions) {
      const targets = term.targets(action);
      this.plan.joints[term.term.name].forEach((joint, i) => this.aim(joint, targets[i]));
    }
    for (let i = 0; i < this.about.decimation; i++) {
      for (const joint of this.plan.computed) this.drive(joint);
      this.mujoco.mj_step(this.model, this.data);
    }
    for (const clock of Object.values(this.clocks)) {
      clock.advance(this.commands[clock.settings.command], this.about.step_dt);
    }
    this.steps += 1;
    return action;
  }

  /** A target of a joint, to the servo in the model or to the law that is computed here. */
  aim(joint, target) {
    if (joint.law === "model") this.data.ctrl[joint.ctrl] = joint.factor * target;
    else this.targets[joint.ctrl] = { ...this.targets[joint.ctrl], [joint.target]: target };
  }

  /** PD with feed-forward, under the torque-speed line of a motor if it has one. */
  drive(joint) {
    const { qpos, qvel, ctrl } = this.data;
    const { position = joint.rest, velocity = 0, effort = 0 } = this.targets[joint.ctrl] ?? {};
    let force = joint.stiffness * (position - qpos[joint.qpos]) + joint.damping * (velocity - qvel[joint.qvel]) + effort;
    if (joint.law === "motor") {
      const speed = qvel[joint.qvel] / joint.no_load_speed;
      const highest = Math.max(Math.min(joint.stall * (1 - speed), joint.limit), -joint.limit);
      const lowest = Math.min(Math.max(joint.stall * (-1 - speed), -joint.limit), joint.limit);
      force = clamp(force, lowest, highest);
    }
    ctrl[joint.ctrl] = force;
  }

  /** A velocity in a random direction over the ground, m/s; on a robot that is fixed, of its joints. */
  push(speed) {
    const { qvel } = this.data;
    const angle = 2 * Math.PI * Math.random();
    if (this.plan.root) {
      qvel[this.plan.root.vel] += speed * Math.cos(angle);
      qvel[this.plan.root.vel + 1] += speed * Math.sin(angle);
    } else {
      for (let i = 0; i < this.model.nv; i++) qvel[i] += speed * (2 * Math.random() - 1);
    }
  }

  /** Forward and left, m/s, and turning, rad/s, in the robot's own frame. */
  get velocity() {
    const { root } = this.plan;
    if (!root) return null;
    const [forward, left] = this.read({ kind: "base_lin_vel" });
    return [forward, left, this.data.qvel[root.vel + 5]];
  }

  /** Where the robot is, m. */
  get place() {
    const { root } = this.plan;
    return root ? Array.from(this.data.qpos.slice(root.quat - 3, root.quat)) : this.plan.middle;
  }

  get fallen() {
    return Boolean(this.plan.root) && this.read({ kind: "projected_gravity" })[2] > -0.34; // 70° off the vertical
  }
}
