from ._cache_folder import cache_folder as cache_folder
from ._derivatives import compiled_whole as compiled_whole
from ._options import compiler_options as compiler_options
from ._programs import call_compiled as call_compiled
from ._programs import expect_many_calls as expect_many_calls
