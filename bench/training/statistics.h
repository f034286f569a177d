// Statistics: what is said of a figure that five seeds gave: mean and 95 % interval.
//
// And how a learning rate is chosen from a grid. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace crowdsurf::bench {

struct Estimate {
  double mean = 0;
  double interval = 0;  // half of the 95 % interval, by Student's t; 0 with one value
};
// Pre: 1 to 10 values.
Estimate EstimateOf(const std::vector<double>& values);

// Rates a factor of 2 apart, the same for every method.
std::vector<double> RateGrid();

struct BestRate {
  double rate = 0;
  double score = 0;
  bool inside = false;  // the grid has a lower and a higher one
  size_t tried = 0;     // rates of the grid
};
// The lowest score; of equal ones the lower rate. Pre: one score for each rate, at least one.
BestRate BestOf(const std::vector<double>& rates, const std::vector<double>& scores);

}  // namespace crowdsurf::bench
