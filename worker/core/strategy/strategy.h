// Strategy: how peers mix. One contract for all seven (docs/strategies).
//
// Pure: no lock, no bytes, no clock. A strategy sees events and answers with actions that name
// buffer regions; the host runs the kernels. Three transports serve all: masked group reduce
// (OpenRound), pair exchange (PushPair) and edge mailbox (SendEdge). One object per agent and
// per strategy epoch; single sequence.
#pragma once

#include <cstdint>

#include "base/id.h"
#include "base/manifest/strategies.h"
#include "base/time.h"
#include "worker/core/strategy/strategy_actions.h"
#include "worker/core/strategy/strategy_events.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/vector/tensor_view.h"
#include "worker/core/view/model_age.h"

namespace crowdsurf::worker {

class EdgeMailbox;
struct View;

using manifest::Needs;  // static facts, checked at admission

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual Needs needs() const = 0;
  // Strategies on graphs: length of the vector, and where what edges brought is kept. Before
  // OnView; the mailbox outlives the strategy.
  virtual void SetVector(uint64_t /*elements*/, const EdgeMailbox& /*edges*/) {}
  // Strategies that need matrix shapes: the tensors of the vector. Before OnView.
  virtual void SetTensors(const TensorViews& /*tensors*/) {}
  // Strategies that need unit groups: those of the vector, and the greatest chunk. Before OnView.
  virtual void SetUnits(const UnitSchema& /*units*/, uint32_t /*chunk_elements*/) {}
  virtual void OnView(Time now, const View& view, const PeerId& self, StrategyActions& out) = 0;
  virtual void OnEvent(Time now, const Event& event, StrategyActions& out) = 0;
  // RelaySum: factor the trainer multiplies its learning rate by.
  virtual double lr_scale() const { return 1.0; }
  // RelaySum: what this member adds to the job's count of ages; AgesCounted has the sum.
  virtual ModelAge age() const { return {}; }
};

}  // namespace crowdsurf::worker
