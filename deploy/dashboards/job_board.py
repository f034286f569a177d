"""The Job dashboard: how one job trains, averages and survives; the operator's view of it and its agents' own."""
from boards import HALF, QUARTER, THIRD, Board, quantiles, rate

SELECTOR = 'namespace="$namespace", training_job="$training_job"'
FAILED = 'outcome=~"kept|aborted|orphaned"'  # a round that failed, as counted everywhere


def overview(b):
    b.row("Overview")
    b.number("Progress", "Done share of the target.", "percentunit", "max(crowdsurf_job_progress_ratio{})", [(None, "blue"), (1, "green")])
    b.number("Workers training", "Workers that are Ready, as the operator sees them.", "short",
             'sum(max by (state, capacity_type) (crowdsurf_job_workers{+state="training"}))', [(None, "red"), (1, "green")])
    b.number("Samples", "Samples a second of all workers together.", "ops", f"sum({rate('crowdsurf_worker_samples_total{}')})",
             [(None, "blue")])
    b.number("Loss", "Mean of the workers' last losses.", "none", "avg(crowdsurf_worker_loss{})", [(None, "blue")])
    b.number("Disruptions", "Workers that the platform took in the time shown.", "short",
             "sum(max by (reason) (increase(crowdsurf_job_disruptions_total{}[$__range])))", [(None, "blue")])
    b.number("Rounds failed", "Rounds kept, aborted or orphaned in the time shown; a lost worker alone makes none.", "short",
             f"sum(increase(crowdsurf_round_total{{+{FAILED}}}[$__range]))", [(None, "green"), (1, "red")])


def training(b):
    b.row("Training")
    b.graph("Samples", "Samples a second: the whole job, and each worker.", "ops",
            [("job", f"sum({rate('crowdsurf_worker_samples_total{}')})"), ("{{instance}}", rate("crowdsurf_worker_samples_total{}"))],
            HALF)
    b.graph("Loss", "Last loss of each worker, and their mean.", "none",
            [("mean", "avg(crowdsurf_worker_loss{})"), ("{{instance}}", "crowdsurf_worker_loss{}")], HALF)
    b.graph("Steps", "Optimizer steps a second of each worker. Slow ones take part with less weight and hold nobody up.", "ops",
            [("{{instance}}", rate("crowdsurf_worker_steps_total{}"))])
    b.graph("Held by averaging", "Share of the time in which trainers waited for averaging. Delayed overlap keeps it near zero.",
            "percentunit", [("mean", f"avg({rate('crowdsurf_worker_stall_seconds_total{}')})"),
                            ("most", f"max({rate('crowdsurf_worker_stall_seconds_total{}')})")], limits=(.05, .2))
    b.graph("Job samples", "Samples of the whole job in committed averages, as agents and operator know it.", "short",
            [("agents", "max(crowdsurf_averaging_job_samples{})"), ("operator", "max(crowdsurf_job_samples{})")])


def membership(b):
    b.row("Membership")
    b.graph("Workers", "Workers by state, and how many the job asks for.", "short",
            [("{{state}}", "max by (state) (sum by (instance, state) (crowdsurf_job_workers{}))"),
             ("desired", "max(crowdsurf_job_workers_desired{})")])
    b.graph("Members", "Members of the view, as its members count them. Two lines that stay apart are branches.", "short",
            [("most", "max(crowdsurf_view_members{})"), ("fewest", "min(crowdsurf_view_members{})"),
             ("in a branch", "sum(crowdsurf_worker_view_branch{})")])
    b.graph("Disruptions and failures", "Workers taken by the platform, by reason, and those whose own code failed, a second.", "ops",
            [("{{reason}}", f"max by (reason) ({rate('crowdsurf_job_disruptions_total{}')})"),
             ("failure", f"max({rate('crowdsurf_job_failures_total{}')})")])
    b.graph("Views", "Views entered a second by all members, and what makes new ones.", "ops",
            [("entered", f"sum({rate('crowdsurf_view_changes_total{}')})"),
             ("branches", f"sum({rate('crowdsurf_round_branches_total{}')})"),
             ("witness quorum lost", f"sum({rate('crowdsurf_round_witness_quorum_lost_total{}')})")])
    b.graph("Seats", "Joins without a new view: requests, seats given, cells declared vacant, a second.", "ops",
            [("asked", f"sum({rate('crowdsurf_view_join_requests_total{}')})"),
             ("given", f"sum({rate('crowdsurf_view_seats_total{}')})"),
             ("vacant", f"sum({rate('crowdsurf_view_vacancies_total{}')})")])
    b.graph("State for joiners", "Fetches of the last committed average by their end, and chunks served by donors, a second.", "ops",
            [("fetch {{result}}", f"sum by (result) ({rate('crowdsurf_worker_state_fetches_total{}')})"),
             ("chunks served", f"sum({rate('crowdsurf_state_chunks_served_total{}')})")])


def averaging(b):
    b.row("Averaging")
    b.graph("Rounds", "Rounds a second by how they ended. Repaired and adopted ones lost a member and nothing else.", "ops",
            [("{{outcome}}", f"sum by (outcome) ({rate('crowdsurf_round_total{}')})")], HALF, stacked=True)
    b.graph("Round duration", "From opening a round to its decision.", "s", quantiles("crowdsurf_round_decision_seconds"),
            HALF, limits=(1, 5))
    b.graph("Where an averaging's time goes", "Mean seconds of an averaging by what the agent did. Work overlaps; the waits are "
            "what no work fills.", "s",
            [("{{part}}", f"sum by (part) ({rate('crowdsurf_worker_averaging_part_seconds_total{}')}) / on () group_left () "
              f"sum({rate('crowdsurf_averaging_delivered_total{}')})"),
             ("whole", f"sum({rate('crowdsurf_worker_averaging_seconds_total{}')}) / "
              f"sum({rate('crowdsurf_averaging_delivered_total{}')})")], HALF)
    b.graph("Averagings", "Averages given to trainers, and given up (own values stay), a second.", "ops",
            [("delivered", f"sum({rate('crowdsurf_averaging_delivered_total{}')})"),
             ("abandoned", f"sum({rate('crowdsurf_averaging_abandoned_total{}')})")], HALF)
    b.graph("Last average", "Number of the last committed average: newest and oldest among the members.", "short",
            [("newest", "max(crowdsurf_averaging_committed{})"), ("oldest", "min(crowdsurf_averaging_committed{})")], QUARTER)
    b.graph("Ballots", "Rounds that needed the witnesses, a second, by cause.", "ops",
            [("{{cause}}", f"sum by (cause) ({rate('crowdsurf_round_ballots_total{}')})")], QUARTER)
    b.graph("Chunks", "Chunks of applied results a second: reduced once, adopted from a survivor, reduced again.", "ops",
            [("{{how}}", f"sum by (how) ({rate('crowdsurf_round_chunks_total{}')})")], QUARTER, stacked=True)
    b.graph("Must stay zero", "Members that applied different results, or frames and inputs of peers that were refused.", "ops",
            [("divergence", f"sum({rate('crowdsurf_round_divergence_total{}')})"),
             ("other root", f"sum({rate('crowdsurf_round_root_mismatch_total{}')})"),
             ("bad inputs", f"sum({rate('crowdsurf_worker_inputs_bad_total{}')})"),
             ("snapshots not finite", f"sum({rate('crowdsurf_worker_snapshots_refused_total{}')})")], QUARTER)


def network(b):
    b.row("Network")
    b.graph("Tensor bytes", "Bytes a second between agents, all workers together.", "Bps",
            [("sent", f"sum({rate('crowdsurf_tensor_sent_bytes_total{}')})"),
             ("received", f"sum({rate('crowdsurf_tensor_received_bytes_total{}')})")])
    b.graph("Tensor connections", "Open connections, and connections that ended, a second, by how.", "short",
            [("open", "sum(crowdsurf_tensor_connections{})"),
             ("ended: {{how}}", f"sum by (how) ({rate('crowdsurf_tensor_connections_ended_total{}')})")])
    b.graph("Peer messages", "Control messages a second, and those that were dropped, by reason.", "ops",
            [("sent", f"sum({rate('crowdsurf_peer_messages_sent_total{}')})"),
             ("received", f"sum({rate('crowdsurf_peer_messages_received_total{}')})"),
             ("dropped: {{reason}}", f"sum by (reason) ({rate('crowdsurf_peer_messages_dropped_total{}')})")])
    b.graph("DHT requests", "Requests to peers a second; slow: not answered by the peer's own p95; failed: given up.", "ops",
            [("sent", f"sum({rate('crowdsurf_dht_requests_total{}')})"),
             ("slow", f"sum({rate('crowdsurf_dht_requests_slow_total{}')})"),
             ("failed", f"sum({rate('crowdsurf_dht_requests_failed_total{}')})")], HALF)
    b.graph("DHT size", "Mean number of peers in a routing table and of records that a peer holds.", "short",
            [("contacts", "avg(crowdsurf_dht_contacts{})"), ("records", "avg(crowdsurf_dht_records{})")], HALF)


def agents(b):
    b.row("Agents")
    b.graph("CPU", "Cores used by each agent (the trainer is another process).", "short",
            [("{{instance}}", rate("process_cpu_seconds_total{}"))])
    b.graph("Memory", "Resident memory of each agent, the tensors that it shares with its trainer included.", "bytes",
            [("{{instance}}", "process_resident_memory_bytes{}")])
    b.graph("Host thread", "Share of the time in which the thread that owns the cores was busy; near 1, timers are late.",
            "percentunit", [("mean", f"avg({rate('crowdsurf_host_busy_seconds_total{}')})"),
                            ("most", f"max({rate('crowdsurf_host_busy_seconds_total{}')})")], limits=(.5, .9))
    b.graph("Checkpoints", "Checkpoints written a second, by result.", "ops",
            [("{{result}}", f"sum by (result) ({rate('crowdsurf_checkpoint_writes_total{}')})")])
    b.graph("Trainers", "Registrations of trainers and snapshots that they published, a second, by result.", "ops",
            [("registered: {{result}}", f"sum by (result) ({rate('crowdsurf_link_registrations_total{}')})"),
             ("snapshot: {{result}}", f"sum by (result) ({rate('crowdsurf_link_snapshots_total{}')})")])
    b.graph("Agents ready", "Agents that answer Prometheus, and of them those that train.", "short",
            [("up", "count(crowdsurf_worker_ready{})"), ("ready", "sum(crowdsurf_worker_ready{})")])


def build():
    b = Board("crowdsurf-job", "Crowdsurf / Job", "One training job: progress, membership, averaging, network, agents.", SELECTOR)
    b.variable("namespace", "Namespace", "label_values(crowdsurf_job_info, namespace)", multi=False)
    b.variable("training_job", "Training job", "label_values(crowdsurf_job_info{namespace=\"$namespace\"}, training_job)", multi=False)
    b.marks("Disruptions", "orange", "sum by (reason) (increase(crowdsurf_job_disruptions_total{}[$__rate_interval])) > 0")
    for part in (overview, training, membership, averaging, network, agents):
        part(b)
    return b.board.build()
