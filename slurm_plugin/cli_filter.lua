-- BFTrainer's rewriting for sites with CliFilterPlugins=cli_filter/lua: the same as rewrite.c.
-- The SPANK plugin, listed with rewrite=cli_filter, takes and checks the option in the same
-- process, passes it on by environment variables, and checks afterwards what was done here. It
-- refuses a submission that was not rewritten here, with the reason.
-- A site that has a cli_filter.lua of its own calls bftrainer_rewrite(options) in it.

-- Slurm's JSON has only the options that were given; others have their defaults.
local function given_options(options)
  local json = slurm.json_cli_options(options)
  return function(name)
    return string.find(json, '"' .. name .. '":', 1, true) ~= nil
  end
end

-- Whether every option that the rewriting sets is free for it.
local function may_rewrite(options, given, partition, qos)
  for name in string.gmatch(os.getenv("BFTRAINER_FILTER_REFUSED"), "%S+") do
    if given(name) then
      return false
    end
  end
  return (not given("partition") or options["partition"] == partition)
    and (qos == "" or not given("qos") or options["qos"] == qos)
end

-- Slurm shows MIN-MAX as one number where both are the same.
local function read_nodes(options, given)
  local nodes = given("nodes") and options["nodes"] or ""
  local min, max = string.match(nodes, "^(%d+)-?(%d*)$")
  min = tonumber(min)
  return min, tonumber(max) or min
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
  if total > 1000000 then
    return nil -- more than a record says
  end
  return total > 0 and string.format(",minutes=%d", total) or ""
end

-- Tells this job from an earlier one of the same number; a trainer without one is served too.
local function draw_id()
  local random = io.open("/dev/urandom", "rb")
  local drawn = random and random:read(4)
  if random then
    random:close()
  end
  return drawn and string.format(",id=%02x%02x%02x%02x", string.byte(drawn, 1, 4)) or ""
end

local function set_all(options, min, max, minutes, spec, partition, qos)
  options["nodes"] = "1"
  options["ntasks"] = "1"
  options["array"] = string.format("0-%d", max) -- with one that never starts: see rewrite.c
  options["hold"] = ""
  options["partition"] = partition
  options["requeue"] = "" -- the one value that 22.05, 24.11 and 26.05 all take
  options["open-mode"] = "append"
  options["exclusive"] = "exclusive"
  options["time-min"] = "1"
  if qos ~= "" then
    options["qos"] = qos
  end
  options["comment"] =
    string.format("bftrainer:min=%d,max=%d,%s%s%s", min, max, spec, minutes, draw_id())
end

-- Rewrites a tagged submission, if the plugin allows it.
function bftrainer_rewrite(options)
  local spec = os.getenv("BFTRAINER_FILTER_SPEC")
  local partition = os.getenv("BFTRAINER_FILTER_PARTITION")
  local qos = os.getenv("BFTRAINER_FILTER_QOS")
  if not spec or not partition or not qos or options["type"] ~= "sbatch" then
    return
  end
  local given = given_options(options)
  local min, max = read_nodes(options, given)
  local minutes = read_minutes(options, given)
  if may_rewrite(options, given, partition, qos) and min and min >= 1 and max >= min and minutes then
    set_all(options, min, max, minutes, spec, partition, qos)
  end
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
  slurm.log_error("bftrainer: %s", problem)
  return slurm.ERROR
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end
