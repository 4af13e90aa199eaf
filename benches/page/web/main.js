// The page: takes files, has them analysed, and shows the answer and the replays.

import { Engine } from './engine.js';
import { details } from './evidence.js';
import { Explorer, fill } from './explorer.js';
import { by, element, settingsName, shown } from './format.js';
import { answer, explanation, settings } from './tables.js';

/** What the page shows. */
const state = { files: [], engine: null };

/** The parts of the page that an analysis fills. */
const FILLED = ['answer', 'settings', 'explore', 'details', 'error'];
/** Larger files are no texts that a person would read. */
const LONGEST_TEXT = 4 * 2 ** 20;

function status(text) { by('status').textContent = text; }

function fail(error) {
  by('error').textContent = error.message;
  by('error').hidden = false;
}

const secondsSince = (moment) => (performance.now() - moment) / 1000;

/** Reads the files and shows the answer. */
async function analyse() {
  state.engine?.cancel();
  for (const id of FILLED) by(id).hidden = true;
  const begun = performance.now();
  status('Starting …');
  const engine = new Engine((count) => { if (engine === state.engine) status(`Replays: ${count}`); });
  state.engine = engine;
  by('again').disabled = false;
  by('cancel').hidden = false;
  try {
    await engine.ready;
    for (const file of state.files) {
      status(`Reading ${shown(file.name)} …`);
      await engine.addFile(file);
    }
    const gib = by('capacity').valueAsNumber;
    const capacity = Number.isNaN(gib) ? null : Math.round(gib * 2 ** 30);
    const { files: opened, pages } = await engine.ask({ ask: 'open', capacity });
    if (!opened.length) {
      fill('answer', [element('h2', {}, 'Answer'), ...pages.map((text) => element('pre', { className: 'page' }, text))]);
      status(`Done in ${secondsSince(begun).toFixed(1)} s.`);
      return;
    }
    status('Trying settings …');
    const limit = by('seconds').valueAsNumber;
    const left = limit - secondsSince(begun);
    // As in the program: if reading takes more than half of the time, the search takes another half.
    const advice = await engine.ask({ ask: 'advise', seconds: Math.max(left, limit / 2) });
    fill('answer', answer(advice));
    fill('settings', settings(advice));
    fill('details', details(advice));
    status('Preparing the timeline …');
    const onError = (error) => { if (engine === state.engine) fail(error); };
    await new Explorer(engine, choices(opened, advice), onError).show();
    status(`Done in ${secondsSince(begun).toFixed(1)} s with ${(engine.memory / 2 ** 20).toFixed(0)} MiB of this computer's memory.`);
  } catch (error) {
    if (engine !== state.engine) return;
    status('');
    const [file, ...others] = state.files;
    // What is no recording may be a log.
    by('cancel').hidden = true;
    if (file && !others.length && file.size <= LONGEST_TEXT) await explain(await file.text(), error);
    else fail(error);
  } finally {
    if (engine === state.engine) by('cancel').hidden = true;
  }
}

/** Shows what the figures in a text prove; fails with `otherwise`, if given, where it has none. */
async function explain(text, otherwise = null) {
  state.engine?.cancel();
  for (const id of FILLED) by(id).hidden = true;
  const engine = new Engine(() => {});
  state.engine = engine;
  state.files = [];
  by('again').disabled = true;
  status('Reading the text …');
  try {
    await engine.ready;
    fill('answer', explanation(await engine.ask({ ask: 'explain', text })));
    status('Done.');
  } catch (error) {
    if (engine !== state.engine) return;
    status('');
    fail(otherwise ?? error);
  }
}

/** Each file under its own settings and under those advised. */
function choices(opened, advice) {
  const advised = (advice.answer ?? advice).conf;
  return opened.flatMap(({ name, conf }, file) => [
    { text: `${name}, ${settingsName(conf)}`, file, conf: null },
    ...(advised === null ? [] : [{ text: `${name}, ${settingsName(advised)} (advised)`, file, conf: advised }]),
  ]);
}

function take(files) {
  if (!files.length) return;
  state.files = [...files];
  analyse();
}

by('text').oninput = () => { if (by('text').value.trim()) explain(by('text').value); };
by('files').onchange = () => take(by('files').files);
by('input').onsubmit = (event) => { event.preventDefault(); analyse(); };
by('cancel').onclick = () => {
  state.engine.cancel();
  state.engine = null;
  by('cancel').hidden = true;
  status('Cancelled.');
};
document.ondragover = (event) => { event.preventDefault(); by('drop').classList.add('over'); };
document.ondragleave = () => by('drop').classList.remove('over');
document.ondrop = (event) => {
  event.preventDefault();
  by('drop').classList.remove('over');
  take(event.dataTransfer.files);
};
