"""What a log cannot say, in sentences for the report's reader."""

DOWN = (
    "The log knows jobs, not the state of nodes: a node that was down, drained or reserved "
    "counts as idle."
)
RESERVED = (
    "Nodes that the accounting knows as down or drained do not count as idle; those that were kept "
    "free by a reservation do (--reservations)."
)
ONLY_RESERVED = (
    "Nodes that were reserved do not count as idle; those that were down or drained do, because "
    "the log does not know them (--down)."
)
UNSEEN = (
    "A node that no job in the log ever used does not appear; the machine is assumed to have the "
    "nodes that appear, or those of --node-list."
)
ANONYMOUS = (
    "The log does not say which nodes a job had. How many nodes were idle at any time is right; "
    "the length of each hole assumes that the node freed last is taken first, so that the longest "
    "holes are longer, and the shortest shorter, than those of real nodes; a replay of them gives "
    "somewhat too good results."
)
WHOLE = (
    "Each job is counted with whole nodes: if small jobs share nodes, more nodes were idle than "
    "shown here."
)
PEAK = (
    "The size of the machine is not in the log; it is assumed to be the most nodes ever busy at "
    "once (--nodes gives the true size)."
)
OVERFULL = (
    "At its peak the log has {peak:,} nodes busy, more than the {nodes:,} of the machine: nodes "
    "were shared by several jobs, or --nodes is too small."
)
EDGES = (
    "Jobs that began before the log, or were still running when it was taken, may be missing "
    "from it; its edges were cut off by how long its jobs run: of its {hours:,.4g} hours, "
    "{left:,.4g} ({kept:.0f} %) are left (--from and --to give better edges)."
)
BEYOND = (
    "The log holds only {held}: in the rest of the time that was asked for, nodes count as idle."
)
LOCAL = "The log's times name no zone; they are read as times of {zone} (--time-zone)."
NO_DATES = (
    "The log's header does not say when the log began (UnixStartTime), so all dates and hours here "
    "are wrong: they count from 1970."
)
NO_SUBMIT = (
    "The log has no column Submit, so it does not say how long jobs waited, nor what ordinary jobs "
    "would feel; write it anew: {command}"
)
RUNNING = (
    "{jobs} without an end in the log: each holds its nodes to its last moment; ends that the "
    "accounting lost look the same (sacctmgr show runawayjobs)."
)
SLICES = (
    "Jobs had slices of GPUs (MIG: {kind}), and each counts as a GPU here. NCCL does not join "
    "slices, so trainers get no parts of such nodes: what is said of GPUs is too much."
)
LISTED = "The holes are as the file lists them; it does not say how they were found."
CONTROLLER = (
    "The holes are those that the controller saw while it ran; while it was down it saw none. "
    "Nodes that were down, drained or reserved are not among them."
)
MACHINE = (
    "The size of the machine is not in the file; it is assumed to be the nodes that ever had a "
    "hole (--nodes gives the true size)."
)
SYNTHETIC = (
    "The cluster is made up: its jobs are drawn at random and scheduled first come first served "
    "with EASY backfill. It shows what the figures mean, not what a real cluster has."
)
