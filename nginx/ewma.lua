-- The policy ewma of ingress-nginx: of two random servers, the one with the lower moving average of its answers' times.
-- An average forgets the past, and sinks to 0 while nobody answers. It knows nothing of requests that are under way.
local balancer = require "ngx.balancer"

local DECAY_S = 10
local ewma = {}
local peers, by_address = {}, {}
math.randomseed(ngx.now() * 1000)

local function average_s(peer, took_s)
  local weight = math.exp((peer.answered - ngx.now()) / DECAY_S)
  return peer.average_s * weight + took_s * (1 - weight)
end

function ewma.add(host, port)
  local peer = { host = host, port = port, average_s = 0, answered = 0 }
  peers[#peers + 1], by_address[host .. ":" .. port] = peer, peer
end

function ewma.choose()
  local place = math.random(#peers)
  local one = peers[place]
  local other = peers[(place - 1 + math.random(math.max(#peers - 1, 1))) % #peers + 1]
  local chosen = average_s(other, 0) < average_s(one, 0) and other or one
  assert(balancer.set_current_peer(chosen.host, chosen.port))
end

function ewma.learn()
  local peer = by_address[ngx.var.upstream_addr]
  local connect_s, response_s = tonumber(ngx.var.upstream_connect_time), tonumber(ngx.var.upstream_response_time)
  if peer then
    peer.average_s = average_s(peer, (connect_s or 0) + (response_s or 0))
    peer.answered = ngx.now()
  end
end

return ewma
