"""The Operator dashboard: is it healthy, is it fast, and how does its fleet of jobs do?"""
from boards import HALF, QUARTER, THIRD, Board, quantiles, rate

# Of the operator's own targets; a scrape names them by job and instance.
SELECTOR = 'job=~"$job", instance=~"$instance"'


def overview(b):
    b.row("Overview")
    b.number("Operators up", "Operator processes that answer Prometheus. One is enough; two give a fast fail-over.", "short",
             "sum(up{})", [(None, "red"), (1, "green")])
    b.number("Leaders", "Processes that hold the lease. Exactly one decides; none for longer than 20 s is an outage.", "short",
             "sum(leader_election_master_status{})", [(None, "red"), (1, "green"), (2, "red")])
    b.number("Jobs running", "Jobs whose condition Running is True.", "short",
             'sum(crowdsurf_job_condition{+condition="Running"})', [(None, "blue")])
    b.number("Workers training", "Workers of all jobs that are Ready.", "short",
             'sum(crowdsurf_job_workers{+state="training"})', [(None, "blue")])
    b.number("Reconcile errors", "Reconciles that failed in the time shown. They are tried again with back-off.", "short",
             "sum(increase(controller_runtime_reconcile_errors_total{}[$__range]))",
             [(None, "green"), (1, "orange"), (100, "red")])
    b.number("Version", "The operator's version, of every process.", "none",
             'max by (version) (crowdsurf_build_info{+program="crowdsurf-operator"})', [(None, "text")], "{{version}}", text=True)


def reconciling(b):
    b.row("Reconciling")
    b.graph("Reconciles", "Turns a second, by result. A busy fleet has some; a steady one has almost none.", "ops",
            [("{{result}}", f"sum by (result) ({rate('controller_runtime_reconcile_total{}')})")], stacked=True)
    b.graph("Reconcile duration", "How long one turn of one job takes, calls to the API server included.", "s",
            quantiles("controller_runtime_reconcile_time_seconds"), limits=(1, 10))
    b.graph("Reconcile errors", "Failed turns a second; terminal ones fail until somebody changes the job.", "ops",
            [("all", f"sum({rate('controller_runtime_reconcile_errors_total{}')})"),
             ("terminal", f"sum({rate('controller_runtime_terminal_reconcile_errors_total{}')})")])
    b.graph("Queue depth", "Jobs that wait for a turn, those that wait for a time included.", "short",
            [("{{instance}}", "workqueue_depth{}")], QUARTER)
    b.graph("Queue wait", "From the moment a job was due to its turn. It grows when turns are slow.", "s",
            quantiles("workqueue_queue_duration_seconds"), QUARTER, limits=(1, 10))
    b.graph("Queue traffic", "Keys added and tried again after a failure, a second.", "ops",
            [("added", f"sum({rate('workqueue_adds_total{}')})"), ("retried", f"sum({rate('workqueue_retries_total{}')})")],
            QUARTER)
    b.graph("Turn under way", "Age of the turn under way: a line that climbs is a call that hangs.", "s",
            [("{{instance}}", "workqueue_longest_running_processor_seconds{}")], QUARTER, limits=(10, 60))


def api_server(b):
    b.row("API server")
    b.graph("Requests by answer", "Requests to the API server a second. 409 is a lost race, 429 the server's throttling.", "reqps",
            [("{{code}}", f"sum by (code) ({rate('rest_client_requests_total{}')})")], stacked=True)
    b.graph("Requests by method", "What the operator asks for. An idle fleet only renews its lease.", "reqps",
            [("{{method}}", f"sum by (method) ({rate('rest_client_requests_total{}')})")], stacked=True)
    b.graph("Request duration", "Time from sending a request to the whole answer, watches left out.", "s",
            quantiles("rest_client_request_duration_seconds"), limits=(1, 5))
    b.graph("Wait for a connection", "Requests wait when all of the client's connections are busy.", "s",
            quantiles("rest_client_rate_limiter_duration_seconds"), limits=(.1, 1))
    b.graph("Watches begun anew", "A watch ends when its version is too old (expired: lists again) or on an error (failed).", "ops",
            [("{{reason}}", f"sum by (reason) ({rate('crowdsurf_operator_watch_restarts_total{}')})")])
    b.graph("Objects held", "What the caches hold, by kind. Memory follows it.", "short",
            [("{{resource}}", "max by (resource) (crowdsurf_operator_cache_objects{})")])
    b.graph("Writes to pods", "Creates, deletes and annotations a second; refused: the platform said no (quota, rights, template).", "ops",
            [("{{call}}", f"sum by (call) ({rate('crowdsurf_operator_pod_calls_total{}')})"),
             ("refused", f"sum({rate('crowdsurf_operator_creates_refused_total{}')})")], HALF)
    b.graph("Certificates", "Agents' certificates signed a second, and requests refused, by reason.", "ops",
            [("signed", f"sum({rate('crowdsurf_signer_granted_total{}')})"),
             ("refused: {{reason}}", f"sum by (reason) ({rate('crowdsurf_signer_refused_total{}')})")], HALF)


def fleet(b):
    b.row("Fleet")
    b.graph("Jobs by condition", "Jobs for which a condition is True; one job has several.", "short",
            [("{{condition}}", "sum by (condition) (crowdsurf_job_condition{})")])
    b.graph("Workers by state", "Workers of all jobs. Pending for long: no capacity, or an image that does not come.", "short",
            [("{{state}}", "sum by (state) (crowdsurf_job_workers{})")], stacked=True)
    b.graph("Workers by capacity", "Spot against on-demand.", "short",
            [("{{capacity_type}}", "sum by (capacity_type) (crowdsurf_job_workers{})")], stacked=True)
    b.graph("Disruptions", "Workers that the platform took, a second, by reason. They never fail a job.", "ops",
            [("{{reason}}", f"sum by (reason) ({rate('crowdsurf_job_disruptions_total{}')})")], stacked=True)
    b.graph("Failures", "Workers whose own code ended in failure, a second. These count towards backoffLimit.", "ops",
            [("failures", f"sum({rate('crowdsurf_job_failures_total{}')})"),
             ("deleted by force", f"sum({rate('crowdsurf_operator_forced_deletions_total{}')})")])
    b.heat("Replacement latency", "From the mark on a node to the replacement that trains; each cell counts replacements.",
           "sum by (le) (increase(crowdsurf_operator_replacement_seconds_bucket{}[$__rate_interval]))")
    b.heat("Notice", "Time that workers were given between a notice and the end of their node.",
           "sum by (le) (increase(crowdsurf_operator_notice_lead_seconds_bucket{}[$__rate_interval]))")
    b.heat("Start-up", "From the start of a job to its first worker that trains.",
           "sum by (le) (increase(crowdsurf_operator_job_startup_seconds_bucket{}[$__rate_interval]))")
    b.ranking("Most disrupted jobs", "Workers taken from each job in the time shown, the ten with most.", "short",
              "topk(10, sum by (namespace, training_job) (increase(crowdsurf_job_disruptions_total{}[$__range])))", THIRD)


def process(b):
    b.row("Process")
    b.graph("Memory", "Resident memory of each operator process.", "bytes", [("{{instance}}", "process_resident_memory_bytes{}")])
    b.graph("CPU", "Cores used by each operator process.", "short", [("{{instance}}", rate("process_cpu_seconds_total{}"))])
    b.graph("Open files", "File descriptors, against the most it may open.", "short",
            [("{{instance}}", "process_open_fds{}"), ("most", "min(process_max_fds{})")])


def build():
    b = Board("crowdsurf-operator", "Crowdsurf / Operator", "The operator's health and its fleet of training jobs.", SELECTOR)
    b.variable("job", "Job", "label_values(leader_election_master_status{name=\"crowdsurf-operator\"}, job)", multi=True)
    b.variable("instance", "Instance", "label_values(leader_election_master_status{job=~\"$job\"}, instance)", multi=True)
    for part in (overview, reconciling, api_server, fleet, process):
        part(b)
    return b.board.build()
