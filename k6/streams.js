// Viewers who follow streams, such as server-sent events or the answers of a language model, one after the other, and
// quick requests at a fixed rate beside them. Does a quick request wait for a stream?

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { closedLoop, openLoop } from './lib/shapes.js';

const VIEWERS = number('VIEWERS');
const PARTS = number('PARTS');
const EVERY_S = number('EVERY_S');
const QUICK_RPS = number('QUICK_RPS');
const QUICK_DELAY_S = number('QUICK_DELAY_S');
const USERS_MAX = number('USERS_MAX');

export const options = {
  scenarios: {
    stream: closedLoop('stream', VIEWERS),
    quick: openLoop('quick', QUICK_RPS, USERS_MAX),
  },
};

export function stream() {
  get('stream', `/stream?parts=${PARTS}&every=${EVERY_S}`, PARTS * EVERY_S * 1000);
}

export function quick() {
  get('quick', `/?delay=${QUICK_DELAY_S}`, QUICK_DELAY_S * 1000);
}
