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

-- The only task of --array (N or N-N, a limit like %2 is ignored), which a trainer can be; else nil.
local function one_task(options, given)
  local array = given("array") and string.gsub(options["array"], "%%%d+$", "") or ""
  local first, last = string.match(array, "^(%d+)%-?(%d*)$")
  local task = first and tonumber(first)
  if not task or #first > 7 or #last > 7 or array == first .. "-" then
    return nil
  end
  return (last == "" or tonumber(last) == task) and task or nil
end

-- Whether the user has given no option that contradicts the rewriting.
local function may_rewrite(options, given, qos)
  for name in string.gmatch(os.getenv("BFTRAINER_FILTER_REFUSED"), "%S+") do
    if given(name) and not (name == "array" and one_task(options, given)) then
      return false
    end
  end
  return qos == "" or not given("qos") or options["qos"] == qos
end

-- Whether the user asks for all memory of a node: see rewrite.c.
local function takes_all_memory(options, given)
  for _, name in ipairs({ "mem", "mem-per-cpu" }) do
    if given(name) and string.find(options[name] or "", "^0+%D*$") then
      return true
    end
  end
  return false
end

-- N means 1 to N; Slurm shows N-N as N.
local function read_range(options, given)
  local nodes = given("nodes") and options["nodes"] or ""
  local min, max = string.match(nodes, "^(%d+)-(%d+)$")
  if min then
    return tonumber(min), tonumber(max)
  end
  return 1, tonumber(string.match(nodes, "^%d+$"))
end

-- The least and the most number of nodes, and the sizes as the record has them; see rewrite.c.
local function read_nodes(options, given, spec)
  local function key(name)
    return string.match("," .. spec, "," .. name .. "=([^,]+)")
  end
  local min, max = read_range(options, given)
  local sizes, step = key("sizes"), tonumber(key("step") or 1)
  max = max or (sizes and 1000000)
  if not max or min < 1 or tonumber(key("min") or 1) > max then
    return nil
  end
  min = tonumber(key("min") or min)
  if not sizes then
    min, max = math.ceil(min / step) * step, math.floor(max / step) * step
    return min <= max and min, max, step > 1 and string.format(",step=%d", step) or ""
  end
  local kept = {}
  for size in string.gmatch(sizes, "%d+") do
    if tonumber(size) >= min and tonumber(size) <= max then
      kept[#kept + 1] = size
    end
  end
  return tonumber(kept[1]), tonumber(kept[#kept]), ",sizes=" .. table.concat(kept, ":")
end

-- A list of Slurm's as a field of the record, with colons for its commas; nil if it is not a valid list.
local function list_field(name, list, bytes)
  if list == "" then
    return ""
  end
  return string.match(list, bytes) and string.format(",%s=%s", name, (string.gsub(list, ",", ":")))
end

-- The user's nodes, and the user's partitions unless the trainers' partition is one of them.
local function read_places(options, given, partition)
  local partitions = given("partition") and options["partition"] or ""
  if string.find("," .. partitions .. ",", "," .. partition .. ",", 1, true) then
    partitions = ""
  end
  local nodes = given("nodelist") and options["nodelist"] or ""
  local of_partitions = list_field("partitions", partitions, "^[%w_.+@/,-]+$")
  local of_nodes = list_field("nodes", nodes, "^[%w_.,%[%]-]+$")
  return of_partitions and of_nodes and of_partitions .. of_nodes
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
    return nil -- more than a record can have
  end
  return total > 0 and string.format(",minutes=%d", total) or ""
end

-- Distinguishes this job from an earlier job of the same number; a trainer also runs without an id.
local function draw_id()
  local random = io.open("/dev/urandom", "rb")
  local drawn = random and random:read(4)
  if random then
    random:close()
  end
  return drawn and string.format(",id=%02x%02x%02x%02x", string.byte(drawn, 1, 4)) or ""
end

-- Whether a list asks for a GPU: gpu:a100:2, or a100:2 if the kind is "".
local function asks(list, kind)
  for one in string.gmatch(list, "[^,]+") do
    local asked = string.gsub(one, "^gres[:/]", "")
    if (kind == "" or string.find(asked .. ":", "^" .. kind .. "[:=]")) and not string.find(":" .. asked, "[:=]0+$") then
      return true
    end
  end
  return false
end

-- Whether elements have only a part of a node: GPUs, with their cores and memory.
local function shares(options, given)
  if not os.getenv("BFTRAINER_FILTER_SHARE") or given("exclusive") or given("gpus-per-task")
    or takes_all_memory(options, given) then
    return false
  end
  return given("gpus")
    or given("gpus-per-node") and asks(options["gpus-per-node"], "")
    or given("gres") and asks(options["gres"], "gpu")
end

-- Tasks and GPUs are left to the SPANK plugin, which can read the script.
local function set_all(options, given, max, comment, partition, qos)
  options["nodes"] = "1"
  options["array"] = string.format("0-%d", max) -- one task never starts: see rewrite.c
  options["hold"] = ""
  options["partition"] = partition
  options["requeue"] = "" -- the one value that 22.05, 24.11 and 26.05 all take
  options["open-mode"] = "append"
  if not shares(options, given) then
    options["exclusive"] = "exclusive"
  end
  options["time-min"] = "1"
  if qos ~= "" then
    options["qos"] = qos
  end
  if given("nodelist") then
    options["nodelist"] = "" -- the record has it
  end
  options["comment"] = comment
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
  local min, max, sizes = read_nodes(options, given, spec)
  local minutes = read_minutes(options, given)
  local places = read_places(options, given, partition)
  if not may_rewrite(options, given, qos) or not min or not minutes or not places then
    return
  end
  if given("time-min") then
    slurm.log_info("bftrainer: --time-min is left out: Slurm may cut a run short anyway")
  end
  local of_record = string.match(spec, "^weight=[^,]+,grace=[^,]+,node_hours=[^,]+")
    or string.match(spec, "^weight=[^,]+,grace=[^,]+")
  local task = one_task(options, given)
  local record = string.format("bftrainer:min=%d,max=%d,", min, max)
    .. of_record
    .. minutes
    .. places
    .. sizes
    .. (task and string.format(",task=%d", task) or "")
    .. draw_id()
  local own = given("comment") and options["comment"] or ""
  local comment = own ~= "" and record .. " " .. own or record
  if #comment <= 1024 then -- Slurm refuses longer ones, and the plugin says so
    set_all(options, given, max, comment, partition, qos)
  end
end

function slurm_cli_setup_defaults(options, early)
  return slurm.SUCCESS
end

-- After an error in Lua, Slurm would submit the job unchanged: so catch every error.
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
