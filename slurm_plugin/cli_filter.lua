-- BFTrainer's rewriting for sites with CliFilterPlugins=cli_filter/lua: the same as rewrite.c.
-- The SPANK plugin, listed with rewrite=cli_filter, takes and checks the option in the same
-- process, says so by two environment variables, and checks afterwards what was done here.
-- A site that has a cli_filter.lua of its own calls bftrainer_rewrite(options) in it.

local REFUSED = {
  { "array", "a trainer is a job array itself; leave --array out (and SBATCH_ARRAY_INX unset)" },
  { "ntasks", "the number of tasks changes with the nodes; leave --ntasks out" },
  { "gpus", "the number of nodes changes; write --gpus-per-node instead of --gpus" },
  { "nodelist", "the nodes change; write --constraint or --exclude instead of --nodelist" },
  { "nodefile", "the nodes change; write --constraint or --exclude instead of --nodefile" },
  { "comment", "the comment holds the trainer's record; leave --comment out" },
  { "begin", "a trainer starts when nodes are idle; leave --begin out" },
  { "hold", "a trainer is held until nodes are idle; leave --hold out" },
  { "time-min", "Slurm may cut a run short anyway; leave --time-min out" },
  {
    "reservation",
    "trainers run on idle nodes only; leave --reservation out (and SBATCH_RESERVATION unset)",
  },
  { "licenses", "licences do not come back with a reclaimed node; leave --licenses out" },
  { "prefer", "the plan chooses the nodes; leave --prefer out" },
}


local function refuse(...)
  error({ refusal = string.format(...) }, 0)
end

-- Only the options that were given are in Slurm's JSON; one that was not reads as its default.
local function given_options(options)
  local json = slurm.json_cli_options(options)
  return function(name)
    return string.find(json, '"' .. name .. '":', 1, true) ~= nil
  end
end

local function check_refused(options, given, partition, qos)
  for _, row in ipairs(REFUSED) do
    if given(row[1]) then
      refuse("%s", row[2])
    end
  end
  if given("constraint") and string.find(options["constraint"], "[][(){}*]") then
    refuse(
      "a trainer's nodes come one by one; write --constraint as features with & or |, "
        .. "without counts, brackets or parentheses"
    )
  end
  if given("ntasks-per-node") and options["ntasks-per-node"] ~= "1" then
    refuse("torchrun starts a node's processes; write --ntasks-per-node=1 or leave it out")
  end
  if given("partition") and options["partition"] ~= partition then
    refuse(
      "trainers run in partition %s; leave --partition out (and SBATCH_PARTITION unset) "
        .. "or write --partition=%s",
      partition,
      partition
    )
  end
  if qos ~= "" and given("qos") and options["qos"] ~= qos then
    refuse("trainers run in QOS %s; leave --qos out (and SBATCH_QOS unset) or write --qos=%s", qos, qos)
  end
end

local function read_nodes(options, given)
  if not given("nodes") then
    refuse("how many nodes? write -N MIN-MAX, for example -N 2-16")
  end
  local nodes = options["nodes"]
  local min, max = string.match(nodes, "^(%d+)-(%d+)$")
  if not min then
    min = string.match(nodes, "^(%d+)$") -- Slurm shows MIN-MAX as one number where both are
    max = min
  end
  if not min then
    refuse("-N %s is not a range; write -N MIN-MAX, for example -N 2-16", nodes)
  end
  if tonumber(min) < 1 or tonumber(max) < tonumber(min) then
    refuse("-N %s: MIN is at least 1 and not above MAX; write for example -N 2-16", nodes)
  end
  return tonumber(min), tonumber(max)
end

-- Slurm shows a time limit as [DAYS-]HOURS:MINUTES:SECONDS, rounded up to minutes, or a word.
local function read_minutes(options, given)
  local limit = given("time") and options["time"] or ""
  local days, clock = string.match(limit, "^(%d+)-(.*)$")
  local hours, minutes = string.match(clock or limit, "^(%d+):(%d+):")
  if not hours then
    return "" -- as long as the partition allows
  end
  local total = ((tonumber(days) or 0) * 24 + tonumber(hours)) * 60 + tonumber(minutes)
  return total > 0 and string.format(",minutes=%d", total) or ""
end

local function set_all(options, min, max, minutes, spec, partition, qos)
  options["nodes"] = "1"
  options["ntasks"] = "1"
  options["array"] = string.format("0-%d", max - 1)
  options["hold"] = ""
  options["partition"] = partition
  options["requeue"] = "" -- the one value that 22.05, 24.11 and 26.05 all take
  options["open-mode"] = "append"
  options["exclusive"] = "exclusive"
  options["time-min"] = "1"
  if qos ~= "" then
    options["qos"] = qos
  end
  options["comment"] = string.format("bftrainer:min=%d,max=%d,%s%s", min, max, spec, minutes)
end

-- Rewrites a tagged submission; raises { refusal = ... } when nothing may be submitted.
function bftrainer_rewrite(options)
  local spec = os.getenv("BFTRAINER_FILTER_SPEC")
  local partition = os.getenv("BFTRAINER_FILTER_PARTITION")
  local qos = os.getenv("BFTRAINER_FILTER_QOS")
  if not spec or not partition or not qos or options["type"] ~= "sbatch" then
    return
  end
  local given = given_options(options)
  check_refused(options, given, partition, qos)
  local min, max = read_nodes(options, given)
  set_all(options, min, max, read_minutes(options, given), spec, partition, qos)
end

function slurm_cli_setup_defaults(options, early)
  return slurm.SUCCESS
end

-- An error that Lua itself raised would let the job through as it is: catch every one.
function slurm_cli_pre_submit(options, offset)
  if offset > 0 then
    return slurm.SUCCESS -- a heterogeneous job: the SPANK plugin refuses it when it is tagged
  end
  local done, problem = pcall(bftrainer_rewrite, options)
  if done then
    return slurm.SUCCESS
  end
  slurm.log_error("bftrainer: %s", type(problem) == "table" and problem.refusal or problem)
  return slurm.ERROR
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end
