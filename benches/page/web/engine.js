// The engine as the page sees it: promises, answered by the web worker.

const decode = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const content = (id) => document.getElementById(id).textContent;

export class Engine {
  #worker;
  #waiting = new Map();
  #next = 0;
  #panic = '';
  /** Bytes of memory that the engine has. */
  memory = 0;

  /** `onReplayed` is told the number of replays. */
  constructor(onReplayed) {
    const address = URL.createObjectURL(new Blob([content('worker')], { type: 'text/javascript' }));
    this.#worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.#worker.onmessage = ({ data }) => {
      if (data.replayed) return onReplayed(data.replayed);
      if (data.panicked) { this.#panic = data.panicked; return undefined; }
      this.memory = data.memory ?? this.memory;
      const { resolve, reject } = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if (data.error === undefined) return resolve(data.reply);
      return reject(new Error(this.#panic ? `The analysis ended unexpectedly: ${this.#panic}` : data.error));
    };
    this.#worker.onerror = (event) => this.#end(new Error(event.message));
    this.ready = this.#send('start', decode(content('engine')));
  }

  #send(what, argument) {
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, what, argument });
    });
  }

  addFile(file) { return this.#send('addFile', file); }

  /** The reply to a request, as bytes. */
  bytes(request) { return this.#send('ask', request); }

  /** The reply to a request, from JSON. */
  async ask(request) { return JSON.parse(new TextDecoder().decode(await this.bytes(request))); }

  /** Ends all work. */
  cancel() {
    this.#worker.terminate();
    this.#end(new Error('cancelled'));
  }

  #end(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
