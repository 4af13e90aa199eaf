// The web worker: holds the engine and passes requests to it.

let engine = null;

function imports(module) {
  const text = (start, length) => new TextDecoder().decode(new Uint8Array(engine.memory.buffer, start, length));
  const given = {
    page: {
      now: () => performance.now(),
      replayed: (count) => postMessage({ replayed: count }),
      panicked: (start, length) => postMessage({ panicked: text(start, length) }),
    },
  };
  // Libraries of the engine name functions that it never calls.
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    (given[from] ??= {})[name] ??= () => { throw new Error(`${name} does not exist here`); };
  }
  return given;
}

function put(...parts) {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  let at = engine.input(length);
  for (const part of parts) {
    new Uint8Array(engine.memory.buffer).set(part, at);
    at += part.length;
  }
}

async function start(bytes) {
  const module = await WebAssembly.compile(bytes);
  const instance = await WebAssembly.instantiate(module, imports(module));
  engine = instance.exports;
}

async function addFile(file) {
  put(new TextEncoder().encode(`${file.name.replaceAll('\n', ' ')}\n`), new Uint8Array(await file.arrayBuffer()));
  engine.add_file();
}

/** The reply to a request, as a copy of its bytes. */
function ask(request) {
  put(new TextEncoder().encode(JSON.stringify(request)));
  const succeeded = engine.ask();
  const reply = new Uint8Array(engine.memory.buffer, engine.reply_start(), engine.reply_length()).slice();
  if (!succeeded) throw new Error(new TextDecoder().decode(reply));
  return reply;
}

const work = { start, addFile, ask };
let queue = Promise.resolve();

onmessage = ({ data: { id, what, argument } }) => {
  queue = queue.then(async () => {
    try {
      const reply = await work[what](argument);
      const memory = engine.memory.buffer.byteLength;
      postMessage({ id, reply, memory }, reply ? [reply.buffer] : []);
    } catch (error) {
      postMessage({ id, error: error.message });
    }
  });
};
