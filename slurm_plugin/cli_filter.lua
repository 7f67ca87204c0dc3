-- BFTrainer's rewriting for sites with CliFilterPlugins=cli_filter/lua, by Slurm's documented hooks.
-- The SPANK plugin, listed with rewrite=cli_filter, takes the option and names by environment variables
-- a document to complete, a command to run, and where its answer is. It checks afterwards what was done
-- here, does the rest of the answer, and refuses a submission that was not rewritten.
-- A site that has a cli_filter.lua of its own calls bftrainer_rewrite(options) in it.

-- Adds what Slurm has read of this sbatch: the number of the script's words, and the options given.
local function complete(options)
  local document = assert(io.open(os.getenv("BFTRAINER_FILTER_DOCUMENT"), "a"))
  local arguments = options["argv"] and #options["argv"] or 0
  document:write(string.format(',"arguments":%d,"options":', arguments), slurm.json_cli_options(options), "}")
  document:close()
end

-- The answer has three texts a word: what to do, the option's name, its value.
local function set_options(options)
  local file = assert(io.open(os.getenv("BFTRAINER_FILTER_ANSWER"), "rb"))
  local answer = file:read("*a")
  file:close()
  for verb, name, value in string.gmatch(answer, "(%Z*)%z(%Z*)%z(%Z*)%z") do
    if verb == "set" then
      options[name] = value
    elseif verb == "reset" and name == "nodelist" then
      options[name] = "" -- sbatch refuses several nodes for a job of one; the plugin resets the others
    end
  end
end

-- Rewrites a tagged submission.
function bftrainer_rewrite(options)
  local command = os.getenv("BFTRAINER_FILTER_COMMAND")
  if not command or options["type"] ~= "sbatch" then
    return
  end
  complete(options)
  os.execute(command)
  set_options(options)
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
