// Methods: the communication of each baseline (baseline.h has their formulas and sources).
//
// Made by MakeBaseline only. Owner: one run; single sequence. Memory: a few copies of all models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "simulator/baselines/baseline.h"
#include "simulator/baselines/neighbour_mixing.h"

namespace crowdsurf::simulator {

// Loses nothing: it would wait.
template <class Scalar>
class AllReduce : public Baseline<Scalar> {
 public:
  using Baseline<Scalar>::Baseline;

 protected:
  void Communicate() override;
};

template <class Scalar>
class DPsgd : public Baseline<Scalar> {
 public:
  DPsgd(const BaselineOptions& options, Gradients<Scalar>& gradients)
      : DPsgd(options, gradients, MixingWeights::kMetropolis) {}

 protected:
  DPsgd(const BaselineOptions& options, Gradients<Scalar>& gradients, MixingWeights weights)
      : Baseline<Scalar>(options, gradients),
        mixing_(options.graph, weights, options.loss, Rng(options.seed).Fork("losses")) {}
  void Communicate() override;
  void Mix(typename Baseline<Scalar>::Vectors& values);
  const NeighbourMixing<Scalar>& mixing() const { return mixing_; }

 private:
  NeighbourMixing<Scalar> mixing_;
};

// With c = x - x' - u', which is zero at first: x <- W (x + u + c).
template <class Scalar>
class D2 : public DPsgd<Scalar> {
 public:
  D2(const BaselineOptions& options, Gradients<Scalar>& gradients)
      : DPsgd<Scalar>(options, gradients, MixingWeights::kLazy), corrections_(this->Zeros()) {}

 protected:
  void Communicate() override;

 private:
  typename Baseline<Scalar>::Vectors corrections_;
};

// y is the tracker: the sum of all y is the sum of all u.
template <class Scalar>
class GradientTracking : public DPsgd<Scalar> {
 public:
  GradientTracking(const BaselineOptions& options, Gradients<Scalar>& gradients)
      : DPsgd<Scalar>(options, gradients), trackers_(this->Zeros()), last_(this->Zeros()) {}

 protected:
  void Communicate() override;

 private:
  typename Baseline<Scalar>::Vectors trackers_;
  typename Baseline<Scalar>::Vectors last_;  // u of the step before
};

template <class Scalar>
class QuasiGlobal : public DPsgd<Scalar> {
 public:
  QuasiGlobal(const BaselineOptions& options, Gradients<Scalar>& gradients)
      : DPsgd<Scalar>(options, gradients), momenta_(this->Zeros()) {}

 protected:
  void Update(uint32_t worker, std::span<const Scalar> gradient, std::span<Scalar> update) override;
  void Communicate() override;

 private:
  typename Baseline<Scalar>::Vectors momenta_;
};

// The directed exponential graph, one offset a message. All weights are 1/2, so w stays 1 as long
// as nothing is lost; a receiver that misses a message keeps all of its own.
template <class Scalar>
class PushSum : public Baseline<Scalar> {
 public:
  PushSum(const BaselineOptions& options, Gradients<Scalar>& gradients);
  std::span<const Scalar> model(uint32_t worker) const override { return z_[worker]; }

 protected:
  void Communicate() override;

 private:
  void Push(uint32_t offset);

  uint32_t offsets_ = 1;  // 1, 2, 4, ... below n
  uint64_t sent_ = 0;     // messages of each worker
  std::vector<Scalar> weights_;
  typename Baseline<Scalar>::Vectors z_;
  Rng losses_;
};

template <class Scalar>
class Choco : public DPsgd<Scalar> {
 public:
  Choco(const BaselineOptions& options, Gradients<Scalar>& gradients)
      : DPsgd<Scalar>(options, gradients), copies_(this->Zeros()) {}

 protected:
  void Communicate() override;

 private:
  typename Baseline<Scalar>::Vectors copies_;  // h: what neighbours think that a worker has
};

template <class Scalar>
class DeepSqueeze : public DPsgd<Scalar> {
 public:
  DeepSqueeze(const BaselineOptions& options, Gradients<Scalar>& gradients)
      : DPsgd<Scalar>(options, gradients), errors_(this->Zeros()) {}

 protected:
  void Communicate() override;

 private:
  typename Baseline<Scalar>::Vectors errors_;
};

}  // namespace crowdsurf::simulator
