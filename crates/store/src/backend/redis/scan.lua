-- ARGV: the kind, where to begin ('[' or '(' and a place), the place to stop before, how many.
local found, more = page(tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]))
return { found, more and 1 or 0 }
