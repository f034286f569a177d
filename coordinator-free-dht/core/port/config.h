// NodeConfig: every limit, interval and count of a DHT node, with its reason.
//
// Defaults are for production; a simulator's seed may shrink any of them to reach rare branches.
// All durations are monotonic. Sources: K = Maymounkov and Mazieres 2002 (the Kademlia paper), R =
// OpenDHT, libtorrent, jech/dht and hivemind, as their sources have it, and measurements of them
// under churn.
#pragma once

#include <cstddef>

#include "base/backoff.h"
#include "base/time.h"

namespace crowdsurf::dht {

struct NodeConfig {
  // Routing.
  size_t k = 20;            // contacts of a bucket and replicas of a record (K 2.2; R 5.3: 0.56^20)
  int alpha = 3;            // queries in flight of one lookup, slow ones not counted (K 2.3)
  size_t replacements = 8;  // waiting contacts of a full bucket (K 4.1); bounded, unlike hivemind
  int failures_allowed = 2;  // unanswered requests in a row that a contact survives; one less when
                             // somebody waits for its place
  Duration quiet_before_ping = Seconds(15);  // a contact silent for so long is pinged when its
                                             // bucket is full and somebody waits
  size_t pings_in_flight = 32;               // to contacts heard of but not yet heard from

  // Time-outs: of the peer's own round trips, never a fixed second (R 5.2). A request is *slow*
  // after the estimated 95th percentile (another peer is asked too), failed after `fail_factor`
  // times it.
  Duration first_rtt = Milliseconds(50);  // the percentile assumed of a first contact before any
                                          // was made: room for a TLS handshake on busy machines
  Duration min_first = Milliseconds(10);  // floor of it once some were measured
  Duration min_rtt = Milliseconds(2);     // floor of all others: a hiccup is no reason to hedge
  Duration max_rtt = Seconds(2);          // cap
  double fail_factor = 3;                 // slow -> failed
  Duration min_fail = Milliseconds(30);   // floor of failed: a busy machine schedules so late
  Duration suspect_again = Milliseconds(500);  // a contact that failed is pinged after this, so
                                               // that a silent death is known in seconds
  Duration late_replies = Seconds(5);   // a failed request is remembered so long: a late reply
                                        // still proves life and corrects the estimate
  Duration seed_patience = Seconds(2);  // of an address that neither answers nor refuses
  size_t requests_in_flight = 1024;     // all together; above that new ones fail at once

  // Lookups.
  size_t lookups = 64;              // running at once; above that they wait, in order
  size_t lookups_waiting = 1024;    // above that a Get is answered with nothing
  size_t queries_per_lookup = 128;  // a crowd of liars cannot keep a lookup alive for ever

  // Keeping the table fresh.
  Duration refresh_first =
      Milliseconds(200);                   // a newcomer looks its id up again so soon, then ever
                                           // later: who starts together is met by nobody at first
  Duration min_refresh = Seconds(2);       // own id is looked up again after this while that finds
  Duration max_refresh = Seconds(60);      // new contacts, doubling up to this when it does not
  Duration bucket_refresh = Seconds(600);  // a bucket without a lookup for so long gets one (K 2.3:
                                           // an hour; spot machines live an hour)
  Backoff seed_retry{Milliseconds(100), Seconds(30), 2.0, 0.5};  // of a seed that does not answer
  Duration seed_again = Seconds(60);  // an answered seed is asked again, jittered, for ever: this
                                      // is what merges split swarms
  size_t seeds = 256;                 // addresses kept

  // Store, as a holder.
  size_t value_bytes = size_t{16} * 1024;         // of one record
  size_t key_records = 512;                       // subkeys of one key
  size_t key_bytes = size_t{512} * 1024;          // of all values of one key
  size_t owner_records = 128;                     // records of one owner (subkey) over all keys
  size_t source_records = 4096;                   // records brought by one sender over all keys
  size_t total_bytes = size_t{32} * 1024 * 1024;  // of all values
  Duration longest_life = Seconds(6 * 3600);      // an expiry further away is refused
  Duration sweep = Seconds(5);                    // expired records are dropped at this rhythm

  // What one sender may ask for (source_limiter.h). An honest one asks about once a second when
  // idle. A holder of the roster pushes 100 records a second to each watcher at 100 members. It
  // pushes several hundred in a small job that averages often. A newcomer is handed full
  // keys (512 records) at once. At the limit a sender costs us about a twentieth of a core.
  double source_rate = 2000;     // requests and records a second
  double source_burst = 16'384;  // tokens of a full bucket
  double forged_cost = 20;  // tokens more for a forged record: its signature had to be verified
  size_t sources = 4096;    // buckets kept

  // Publishing.
  Duration holders_first = Milliseconds(250);  // the holders of an own or watched key are looked up
                                               // again after this, then ever later, up to
  Duration holders_refresh = Seconds(30);      // this
  Duration republish = Seconds(60);  // holders republish records that nobody renewed for so long
  size_t own_records = 128;          // kept alive by this node
  size_t first_holders = 3;  // a key's first Put goes to so many of the nearest that are known, and
                             // to all when the lookup has found them: no copies at wrong places

  // Watching.
  size_t watch_holders = 3;  // nearest holders that push to a watcher: one is enough, three
                             // survive a loss; 20 would make 20 copies of every heartbeat
  Duration watch_life = Seconds(30);   // a subscription ends after this unless renewed
  Duration watch_renew = Seconds(10);  // and is renewed, with what changed meanwhile, after this
  size_t watches = 256;                // keys watched by this node
  size_t watchers_per_key = 4096;      // subscriptions held for others
  size_t watchers = 16384;             // over all keys
  size_t watcher_keys = 256;           // keys one peer may watch here
};

}  // namespace crowdsurf::dht
