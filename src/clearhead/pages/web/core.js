// The compiled core as WebAssembly: its memory, and its structures as JSON describes them (kernels/structs.py).

import { RULES } from "./rules.js";

// Bytes of a small module with an instruction: a browser that lacks it does not take the module.
const USES = { // (func (result v128) ..): i32x4.splat; f32x4.relaxed_madd
  simd: [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 17, 11],
  relaxed: [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0,
    65, 0, 253, 17, 65, 0, 253, 17, 65, 0, 253, 17, 253, 133, 2, 11,
  ],
};

/** The best form of the core that this browser can run: `relaxed`, `simd` or `plain`. */
export function bestForm() {
  const takes = (name) => WebAssembly.validate(new Uint8Array(USES[name]));
  return takes("relaxed") ? "relaxed" : takes("simd") ? "simd" : "plain";
}

export class Core {
  /**
   * @param {WebAssembly.Module} module - The core.
   * @param {{structs: object, constants: object}} layout - Offsets and types of all fields, and constants.
   */
  static async load(module, layout) {
    const core = new Core();
    const wasi = {
      clock_time_get: (_clock, _precision, at) => {
        core.view.setBigUint64(at, BigInt(Math.round(1e6 * performance.now())), true);
        return 0;
      },
      sched_yield: () => 0,
    };
    const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi });
    core.functions = instance.exports;
    core.layout = layout;
    core.memory = instance.exports.memory;
    core.end = instance.exports.__heap_base.value;
    core.functions._initialize();
    core.functions.use_form(0);
    return core;
  }

  get view() {
    const { buffer } = this.memory;
    if (this.#view?.buffer !== buffer) this.#view = new DataView(buffer); // which grew
    return this.#view;
  }
  #view;

  /** Return the address of as many bytes, which stay until `release`. Throws RangeError if there is no more memory. */
  allocate(bytes) {
    const start = Math.ceil(this.end / RULES.CACHE_LINE) * RULES.CACHE_LINE;
    const missing = start + bytes - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / 65536));
    this.end = start + bytes;
    return start;
  }

  zeros(bytes) {
    const at = this.allocate(bytes);
    new Uint8Array(this.memory.buffer, at, bytes).fill(0);
    return at;
  }

  /** Free everything that was allocated since the memory ended at `end`. */
  release(end) {
    this.end = end;
  }

  /** Allocate a copy of an array, padded with zeros to `length`; return its address. */
  put(array, length = array.length) {
    const at = this.zeros(length * array.BYTES_PER_ELEMENT);
    new array.constructor(this.memory.buffer, at, length).set(array);
    return at;
  }

  ints(at, length) {
    return new Int32Array(this.memory.buffer, at, length);
  }

  floats(at, length) {
    return new Float32Array(this.memory.buffer, at, length);
  }

  /** Allocate a structure with these fields; the others are 0. */
  make(name, fields = {}) {
    const at = this.zeros(this.layout.structs[name].size);
    this.set(name, at, fields);
    return at;
  }

  /** Allocate structures one behind the other. */
  makeAll(name, all) {
    const { size } = this.layout.structs[name];
    const at = this.zeros(size * all.length);
    all.forEach((fields, number) => this.set(name, at + number * size, fields));
    return at;
  }

  /** Allocate a copy of a structure with other values in these fields. */
  copy(name, at, fields) {
    const copied = this.allocate(this.layout.structs[name].size);
    new Uint8Array(this.memory.buffer).copyWithin(copied, at, at + this.layout.structs[name].size);
    this.set(name, copied, fields);
    return copied;
  }

  set(name, at, fields) {
    const { view } = this;
    for (const [field, value] of Object.entries(fields)) {
      const [offset, kind] = this.layout.structs[name].fields[field];
      const place = at + offset;
      if (kind === "int64_t") view.setBigInt64(place, BigInt(value), true);
      else if (kind === "float") view.setFloat32(place, value, true);
      else if (kind === "double") view.setFloat64(place, value, true);
      else if (kind === "uint8_t") view.setUint8(place, value);
      else if (kind === "int32_t") view.setInt32(place, value, true);
      else if (kind === "address") view.setUint32(place, value, true);
      else this.set(kind, place, value); // a structure in a structure
    }
  }

  get(name, at, field) {
    const [offset, kind] = this.layout.structs[name].fields[field];
    const place = at + offset;
    if (kind === "int64_t") return Number(this.view.getBigInt64(place, true));
    if (kind === "float") return this.view.getFloat32(place, true);
    if (kind === "double") return this.view.getFloat64(place, true);
    if (kind === "address") return this.view.getUint32(place, true);
    return this.view.getInt32(place, true);
  }
}
