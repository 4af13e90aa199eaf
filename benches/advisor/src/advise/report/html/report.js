// The report: the advice and the replays that the page contains.

import { details } from './evidence.js';
import { Explorer, fill } from './explorer.js';
import { by, settingsName } from './format.js';
import { answer, settings } from './tables.js';

const content = (id) => by(id).textContent;

/** The bytes that the page contains under an id, compressed, in base64. */
function inflated(id) {
  const compressed = Uint8Array.from(atob(content(id)), (letter) => letter.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer().then((buffer) => new Uint8Array(buffer));
}

/** Answers the viewer from the data in the page. */
const engine = {
  bytes({ ask, conf }) {
    return inflated(ask === 'frames' ? 'frames' : `replay-${replays.findIndex((one) => one.conf === conf)}`);
  },
  async ask(request) { return JSON.parse(new TextDecoder().decode(await this.bytes(request))); },
};

function fail(error) {
  by('error').textContent = `The replays cannot be shown: ${error.message}. A current browser is needed.`;
  by('error').hidden = false;
}

const advice = JSON.parse(content('advice'));
const replays = JSON.parse(content('replays'));
fill('answer', answer(advice));
fill('settings', settings(advice));
fill('details', details(advice));
// Where the replays would be.
by('details').before(by('missing'));
if (replays.length) {
  const choices = replays.map(({ title, conf }) => ({ text: `${title}: ${settingsName(conf)}`, file: 0, conf }));
  new Explorer(engine, choices, fail).show().catch(fail);
}
