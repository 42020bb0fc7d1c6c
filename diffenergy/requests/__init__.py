"""What a user may ask of a room, declared once.

    class GreetRequest(Request):
        name: Annotated[str, Argument("Who is greeted.")]
        times: Annotated[Whole, Flag("How often")] = 1

    @accepts(GreetRequest)
    def greet(request: GreetRequest) -> str:
        '''A greeting.'''

`greet("Ada", times=3)` checks names, types and ranges; the same record gives the flags
of the command (`cli.flags`), the signature and the arguments in `help(greet)`.

Names load on first use; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
