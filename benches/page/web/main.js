// The page: takes files, has them analysed, and shows the answer and the replays.

import { Engine } from './engine.js';
import { element, settingsName } from './format.js';
import { legend } from './palette.js';
import { Panel } from './panel.js';
import { answer, details, difference, settings } from './tables.js';
import { View } from './view.js';

const by = (id) => document.getElementById(id);
/** What the page shows. */
const state = { files: [], engine: null, opened: [], advice: null, views: new Map() };

function status(text) { by('status').textContent = text; }

function fail(error) {
  by('error').textContent = error.message;
  by('error').hidden = false;
}

function fill(id, children) {
  by(id).replaceChildren(...children);
  by(id).hidden = false;
}

/** Reads the files and shows the answer. */
async function analyse() {
  state.engine?.cancel();
  for (const id of ['answer', 'settings', 'explore', 'details', 'error']) by(id).hidden = true;
  const begun = performance.now();
  status('Starting …');
  const engine = new Engine((count) => { if (engine === state.engine) status(`Replays: ${count}`); });
  Object.assign(state, { engine, views: new Map(), advice: null });
  by('again').disabled = false;
  by('cancel').hidden = false;
  try {
    await engine.ready;
    for (const file of state.files) {
      status(`Reading ${file.name} …`);
      await engine.addFile(file);
    }
    const gib = by('capacity').valueAsNumber;
    const capacity = Number.isNaN(gib) ? null : Math.round(gib * 2 ** 30);
    state.opened = await engine.ask({ ask: 'open', capacity });
    status('Trying settings …');
    state.advice = await engine.ask({ ask: 'advise', seconds: by('seconds').valueAsNumber });
    fill('answer', answer(state.advice));
    fill('settings', settings(state.advice));
    fill('details', details(state.advice));
    status('Preparing the timeline …');
    by('explore').hidden = false;
    offer();
    await explore();
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    status(`Done in ${seconds} s with ${(engine.memory / 2 ** 20).toFixed(0)} MiB of this computer's memory.`);
  } catch (error) {
    if (engine !== state.engine) return;
    status('');
    fail(error);
  } finally {
    if (engine === state.engine) by('cancel').hidden = true;
  }
}

/** Offers each file under its own settings and under those advised. */
function offer() {
  const advised = (state.advice.answer ?? state.advice).conf;
  const choices = state.opened.flatMap((file, index) => [
    { text: `${file.name}, ${settingsName(file.conf)}`, value: JSON.stringify([index, null]) },
    ...(advised === null ? [] : [{ text: `${file.name}, ${settingsName(advised)} (advised)`, value: JSON.stringify([index, advised]) }]),
  ]);
  const options = () => choices.map(({ text, value }) => element('option', { value }, text));
  by('left').replaceChildren(...options());
  by('right').replaceChildren(element('option', { value: '' }, 'nothing'), ...options());
}

/** The view that a choice stands for, replayed once. */
function view(choice) {
  if (!state.views.has(choice)) {
    const [file, conf] = JSON.parse(choice);
    state.views.set(choice, View.fetch(state.engine, file, conf));
  }
  return state.views.get(choice);
}

/** Shows the chosen replays, on the same scale. */
async function explore() {
  const { engine } = state;
  const choices = [by('left').value, by('right').value].filter(Boolean);
  const views = await Promise.all(choices.map(view));
  const most = Math.max(...views.map(({ mostReserved }) => mostReserved));
  const limits = views.map(({ info }) => info.available_bytes).filter((bytes) => bytes < 2 * most);
  const top = 1.06 * Math.max(most, ...limits);
  by('legend').replaceChildren(...legend(
    new Set(views.flatMap(({ stacked }) => stacked.map(({ name }) => name))), limits.length > 0,
  ));
  const panels = views.map((one) => new Panel(engine, one, top, (error) => { if (engine === state.engine) fail(error); }));
  by('panels').className = panels.length > 1 ? 'two' : '';
  by('panels').replaceChildren(...panels.map(({ node }) => node));
  panels.forEach((panel) => panel.begin());
  const [before, after] = choices.map((choice) => JSON.parse(choice)[0]);
  const differ = after !== undefined && before !== after;
  const found = differ ? await state.engine.ask({ ask: 'diff', before, after }) : null;
  by('difference').replaceChildren(...(found ? difference(found) : []));
}

function take(files) {
  if (!files.length) return;
  state.files = [...files];
  analyse();
}

by('files').onchange = () => take(by('files').files);
by('input').onsubmit = (event) => { event.preventDefault(); analyse(); };
by('cancel').onclick = () => {
  state.engine.cancel();
  state.engine = null;
  by('cancel').hidden = true;
  status('Cancelled.');
};
for (const id of ['left', 'right']) {
  by(id).onchange = () => { explore().catch((error) => { if (state.engine) fail(error); }); };
}
document.ondragover = (event) => { event.preventDefault(); by('drop').classList.add('over'); };
document.ondragleave = () => by('drop').classList.remove('over');
document.ondrop = (event) => {
  event.preventDefault();
  by('drop').classList.remove('over');
  take(event.dataTransfer.files);
};
matchMedia('(prefers-color-scheme: dark)').onchange = () => document.querySelectorAll('canvas')
  .forEach((canvas) => { canvas.style.width = canvas.style.width ? '' : '99.99%'; });
