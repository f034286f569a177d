// Seating: the minor state of a view (view.h).
#include <algorithm>
#include <tuple>

#include "base/digest.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

Seating::Seating(View view, ViewHash hash) : view_(std::move(view)), hash_(hash) { Recompute(); }

bool Seating::Insert(const Seat& seat) {
  // Sitting 0 is the view's own: a seat begins at 1.
  if (!IsSound(seat) || seat.sitting == 0 || seat.member.cell >= view_.grid.cells()) return false;
  if (NeedsOf(view_.config).strict_view) return false;  // its members are the view's, all of them
  if (seats_.size() >= kMaxSeats) return false;
  return seats_.insert(seat).second;
}

bool Seating::Insert(const Vacancy& vacancy) {
  if (!IsSound(vacancy) || vacancies_.size() >= kMaxSeats) return false;
  return vacancies_.insert(vacancy).second;
}

bool Seating::Add(const Seat& seat) { return Merge({seat}, {}); }
bool Seating::Add(const Vacancy& vacancy) { return Merge({}, {vacancy}); }

bool Seating::Merge(const std::vector<Seat>& seats, const std::vector<Vacancy>& vacancies) {
  bool changed = false;
  for (const Seat& seat : seats) changed |= Insert(seat);
  for (const Vacancy& vacancy : vacancies) changed |= Insert(vacancy);
  if (changed) Recompute();
  return changed;
}

std::optional<CellIndex> Seating::CellOf(const PeerId& id) const {
  const auto at = cell_of_.find(id);
  if (at == cell_of_.end()) return std::nullopt;
  return at->second;
}

const Member* Seating::At(CellIndex cell) const {
  const auto at = occupants_.find(cell);
  return at == occupants_.end() ? nullptr : &at->second;
}

const Member* Seating::Find(const PeerId& id) const {
  const auto cell = CellOf(id);
  return cell ? At(*cell) : nullptr;
}

std::optional<CellIndex> Seating::FreeCell() const {
  CellIndex cell = 0;
  // Occupants ascend by cell, so the first gap is the least free cell.
  for (const auto& [taken, member] : occupants_) {
    if (taken != cell) return cell;
    ++cell;
  }
  if (cell < view_.grid.cells()) return cell;
  return std::nullopt;
}

uint32_t Seating::NextSitting(const PeerId& id) const {
  const auto at = last_vacancy_.find(id);
  return at == last_vacancy_.end() ? 1 : at->second + 1;
}

uint32_t Seating::SittingOf(const PeerId& id) const {
  uint32_t sitting = 0;
  for (const Seat& seat : seats_)
    if (seat.member.id == id) sitting = std::max(sitting, seat.sitting);
  return sitting;
}

Digest Seating::MinorHash() const {
  ByteWriter out;
  out.U32(static_cast<uint32_t>(seats_.size()));
  for (const Seat& seat : seats_) Encode(seat, out);
  // Sets are ordered, so equal sets have equal hashes.
  for (const Vacancy& vacancy : vacancies_) Encode(vacancy, out);
  return Sha256(out.bytes());
}

Seating Seating::AsOf(AveragingId averaging) const {
  Seating then = *this;
  const auto later = [&](const auto& entry) { return entry.first_averaging > averaging; };
  if (std::erase_if(then.seats_, later) + std::erase_if(then.vacancies_, later) > 0)
    then.Recompute();
  return then;
}

// Occupants are a function of the sets: order and repetition of news do not matter.
void Seating::Recompute() {
  last_vacancy_.clear();
  for (const Vacancy& vacancy : vacancies_) {
    uint32_t& last = last_vacancy_[vacancy.peer];
    last = std::max(last, vacancy.sitting);
  }
  const auto ended = [&](const PeerId& id, uint32_t sitting) {
    const auto at = last_vacancy_.find(id);
    return at != last_vacancy_.end() && sitting <= at->second;
  };
  occupants_.clear();
  cell_of_.clear();
  const auto sit = [&](const Member& member) {
    if (cell_of_.contains(member.id) || occupants_.contains(member.cell)) return;
    occupants_.emplace(member.cell, member);
    cell_of_.emplace(member.id, member.cell);
  };
  for (const Member& member : view_.members)
    if (!ended(member.id, 0)) sit(member);
  // Older steward first; within one steward the older member, then the lower cell: a total order,
  // so the outcome is a function of the set.
  std::vector<const Seat*> claims;
  for (const Seat& seat : seats_)
    if (!ended(seat.member.id, seat.sitting)) claims.push_back(&seat);
  const auto key = [](const Seat* s) {
    return std::tie(s->steward_joined_ms, s->steward, s->member.joined_unix_ms, s->member.id,
                    s->member.cell, s->sitting, s->first_averaging);
  };
  std::stable_sort(claims.begin(), claims.end(),
                   [&](const Seat* a, const Seat* b) { return key(a) < key(b); });
  for (const Seat* seat : claims) sit(seat->member);
}

}  // namespace crowdsurf::worker
