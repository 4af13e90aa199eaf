// Replays to choose from: one on the page, or two beside each other on the same scale.

import { by, element } from './format.js';
import { legend } from './palette.js';
import { Panel } from './panel.js';
import { difference } from './tables.js';
import { View } from './view.js';

/** Replaces what an element contains, and shows it. */
export function fill(id, children) {
  by(id).replaceChildren(...children);
  by(id).hidden = false;
}

export class Explorer {
  #views = new Map();

  /**
   * `choices` are the replays, each with a text, the number of its file, and its settings or null for the file's own.
   * `onError` is told why something cannot be shown.
   */
  constructor(engine, choices, onError) {
    Object.assign(this, { engine, choices, onError });
    const options = () => choices.map(({ text }, number) => element('option', { value: `${number}` }, text));
    by('left').replaceChildren(...options());
    by('right').replaceChildren(element('option', { value: '' }, 'nothing'), ...options());
    for (const id of ['left', 'right']) by(id).onchange = () => { this.show().catch(onError); };
  }

  /** The replay of a choice, fetched once. */
  #view(number) {
    if (!this.#views.has(number)) {
      const { file, conf } = this.choices[number];
      this.#views.set(number, View.fetch(this.engine, file, conf));
    }
    return this.#views.get(number);
  }

  /** Shows the chosen replays. */
  async show() {
    by('explore').hidden = false;
    const numbers = [by('left').value, by('right').value].filter((value) => value !== '').map(Number);
    const views = await Promise.all(numbers.map((number) => this.#view(number)));
    const most = Math.max(...views.map(({ mostReserved }) => mostReserved));
    const limits = views.map(({ info }) => info.available_bytes).filter((bytes) => bytes < 2 * most);
    const top = 1.06 * Math.max(most, ...limits);
    by('legend').replaceChildren(...legend(
      new Set(views.flatMap(({ stacked }) => stacked.map(({ name }) => name))), limits.length > 0,
    ));
    const panels = views.map((view) => new Panel(view, top));
    by('panels').className = panels.length > 1 ? 'two' : '';
    by('panels').replaceChildren(...panels.map(({ node }) => node));
    panels.forEach((panel) => panel.begin());
    const [before, after] = numbers.map((number) => this.choices[number].file);
    const differ = after !== undefined && before !== after;
    const found = differ ? await this.engine.ask({ ask: 'diff', before, after }) : null;
    by('difference').replaceChildren(...(found ? difference(found) : []));
  }
}

// Canvases are drawn in the colours of the moment.
matchMedia('(prefers-color-scheme: dark)').onchange = () => document.querySelectorAll('canvas')
  .forEach((canvas) => { canvas.style.width = canvas.style.width ? '' : '99.99%'; });
