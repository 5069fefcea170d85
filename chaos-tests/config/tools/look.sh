# look, second_source (read): the arguments come back as `echo`.
printf '{"echo":'
cat
printf '}\n'
