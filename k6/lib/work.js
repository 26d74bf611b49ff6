// What a request asks for: how to say it to the server, and how long that takes alone.

import { number, word } from './settings.js';

// Waiting for DELAY_S; computing as CPU says; or waiting for another service that takes DELAY_S.
export function asked() {
  const does = word('DOES', ['wait', 'compute', 'call']);
  if (does === 'compute') {
    return rounds();
  }
  const delayS = number('DELAY_S', 0);
  return { path: `${does === 'call' ? '/call' : '/'}?delay=${delayS}`, ms: delayS * 1000 };
}

// ROUNDS times waiting for WAIT_MS and computing for CPU_MS.
export function rounds() {
  const [count, waitMs, cpuMs] = [number('ROUNDS', 1), number('WAIT_MS', 0), number('CPU_MS', 0)];
  const cpu = word('CPU', ['hold', 'burn']);
  // Found out for each trial; only holding needs it.
  const call = cpu === 'hold' ? `&call_us=${number('CALL_US', 1)}` : '';
  return {
    path: `/work?rounds=${count}&wait_ms=${waitMs}&cpu_ms=${cpuMs}&cpu=${cpu}${call}`,
    ms: count * (waitMs + cpuMs),
  };
}
